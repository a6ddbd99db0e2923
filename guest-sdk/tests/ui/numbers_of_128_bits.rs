#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub fn unsigned(value: u128) {}
    pub fn signed(value: Option<i128>) {}
}

fn main() {}
