#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    fn helper() {}
}

fn main() {}
