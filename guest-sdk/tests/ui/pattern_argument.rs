#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub fn add((left, right): (u32, u32)) {}
    pub fn ignore(_: u32) {}
}

fn main() {}
