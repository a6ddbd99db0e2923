#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub struct Tree {
        pub name: String,
        pub children: Vec<Tree>,
    }

    pub enum Expression {
        Number(f64),
        Sum(Box<Sum>),
    }

    pub struct Sum {
        pub left: Expression,
        pub right: Expression,
    }

    pub fn depth(tree: Tree) {}
    pub fn value(of: Expression) {}
}

fn main() {}
