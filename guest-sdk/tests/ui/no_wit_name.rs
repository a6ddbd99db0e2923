#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub fn größe() {}
}

fn main() {}
