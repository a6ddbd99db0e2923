#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub fn text(text: &str) {}
    pub fn bytes(bytes: &[u8]) {}
    pub fn number(number: &u32) -> &'static str {
        "one"
    }
}

fn main() {}
