#![allow(unused)]

#[portcullis_guest::tools]
mod tool;

fn main() {}
