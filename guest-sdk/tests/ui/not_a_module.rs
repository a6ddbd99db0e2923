#![allow(unused)]

#[portcullis_guest::tools]
pub fn greet(name: String) -> String {
    name
}

fn main() {}
