#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub fn unsigned(value: usize) {}
    pub fn signed(value: Vec<isize>) {}
}

fn main() {}
