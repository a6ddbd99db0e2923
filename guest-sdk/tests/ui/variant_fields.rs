#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub enum Shape {
        Circle { radius: f64 },
        Line(f64, f64),
        Nothing(),
        Square(f64),
    }

    pub fn draw(shape: Shape) {}
}

fn main() {}
