#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub struct Point(u32, u32);
    pub struct Empty {}

    pub fn point(point: Point) {}
    pub fn empty(empty: Empty) {}
}

fn main() {}
