#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    #[flags]
    pub struct Style {
        pub bold: bool,
        pub size: u32,
    }

    #[flags]
    pub enum Mode {
        Fast,
    }

    pub fn look(style: Style) {}
    pub fn choose(mode: Mode) {}
}

fn main() {}
