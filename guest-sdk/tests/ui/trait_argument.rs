#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub fn show(value: impl ToString) {}
    pub fn boxed(value: Box<dyn ToString>) {}
}

fn main() {}
