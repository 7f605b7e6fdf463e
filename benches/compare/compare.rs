//! Comparison benchmark: the whole program measured from outside, compared with nginx, a pass-through of hyper alone,
//! and no proxy at all. Starts each in front of a fast upstream, loads them alternately with the same requests, and
//! writes tables and plots. `make bench`, `make instructions`, `make growth` and `make soak` call it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement may stop, and prints what it does"
)]

mod acting;
#[path = "../bodies/mod.rs"]
mod bodies;
mod bounds;
mod floor;
mod growth;
mod instructions;
mod load;
mod plot;
mod soak;
mod subject;
mod table;
mod upstream;

use std::fs;
use std::path::Path;

/// Chunks of one stream.
pub const CHUNKS: usize = 200;

const USAGE: &str = "usage: compare PATH_OF_TOOLREIN table [PAGE] | chain | instructions [FILE [ROW [FOLDER_FOR_PROFILES]]] | page FILE PAGE \
                     | gate FILE | growth FOLDER | soak SECONDS, or: compare floor PORT UPSTREAM";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["floor", port, upstream] => {
            runtime.block_on(floor::serve(port.parse().unwrap(), upstream.parse().unwrap()));
        }
        [program, "table"] => print!("{}", runtime.block_on(table::measured(program))),
        [program, "table", page] => {
            write_between(Path::new(page), TABLE, &runtime.block_on(table::measured(program)));
        }
        [program, "chain"] => print!("{}", runtime.block_on(table::chain(program))),
        [_, "page", file, page] => {
            let recorded = fs::read_to_string(file).unwrap();
            write_between(Path::new(page), COUNTS, &instructions::markdown(&recorded));
        }
        [program, "instructions", ref rest @ ..] => {
            let (row, kept) = (rest.get(1).copied(), rest.get(2).map(Path::new));
            let text = runtime.block_on(instructions::counted(program, row, kept));
            rest.first().filter(|file| !file.is_empty()).inspect(|file| fs::write(file, &text).unwrap());
            print!("{text}");
        }
        [program, "gate", file] => {
            let recorded = fs::read_to_string(file).unwrap();
            let wrong = runtime.block_on(instructions::compared(program, &recorded));
            if !wrong.is_empty() {
                eprintln!("above what {file} states or above a bound:\n{}", wrong.join("\n"));
                std::process::exit(1);
            }
        }
        [program, "growth", folder] => runtime.block_on(growth::drawn(program, Path::new(folder))),
        [program, "soak", seconds] => {
            let seconds = seconds.parse().unwrap_or_else(|_| panic!("{USAGE}"));
            runtime.block_on(soak::endured(program, seconds));
        }
        _ => panic!("{USAGE}"),
    }
}

/// The lines before and after a table in a document.
type Marks = [&'static str; 2];
const TABLE: Marks = ["<!-- measured by make bench -->", "<!-- end of make bench -->"];
const COUNTS: Marks = ["<!-- counted by make instructions -->", "<!-- end of make instructions -->"];

fn write_between(page: &Path, [before, after]: Marks, table: &str) {
    let text = fs::read_to_string(page).unwrap();
    let start = text.find(before).map(|at| at + before.len()).unwrap_or_else(|| panic!("no {before}"));
    let end = start + text[start..].find(after).unwrap_or_else(|| panic!("no {after}"));
    fs::write(page, format!("{}\n\n{}\n\n{}", &text[..start], table.trim(), &text[end..])).unwrap();
    println!("written to {}:\n\n{}", page.display(), table.trim());
}
