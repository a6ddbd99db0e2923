#![allow(unused)]

#[portcullis_guest::tools(world = "mine")]
mod tool {
    pub fn greet() {}
}

fn main() {}
