#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub fn count(&self) {}
}

fn main() {}
