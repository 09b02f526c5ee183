//! Words for the terminal. Their reader may have enough (`moim load … | head -1`). The run goes on and keeps its verdict.
//! A test runner captures what the macros of the standard library print, and only that.

/// Prints a line for the user; where nobody reads any more, nothing happens. As `println!`.
#[macro_export]
macro_rules! outln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        if cfg!(test) {
            println!($($words)*);
        } else {
            let _ = writeln!(std::io::stdout(), $($words)*);
        }
    }};
}

/// The same without the end of the line. As `print!`.
#[macro_export]
macro_rules! out {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        if cfg!(test) {
            print!($($words)*);
        } else {
            let _ = write!(std::io::stdout(), $($words)*);
        }
    }};
}

/// The same on the standard error stream. As `eprintln!`.
#[macro_export]
macro_rules! errln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        if cfg!(test) {
            eprintln!($($words)*);
        } else {
            let _ = writeln!(std::io::stderr(), $($words)*);
        }
    }};
}
