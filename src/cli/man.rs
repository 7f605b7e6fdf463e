//! Manual pages: roff, made from the definition of the command line, so that they cannot differ from the help.

use super::{Cli, EXIT_REFUSED};
use clap::CommandFactory as _;
use clap_mangen::Man;

/// The output of `toolrein man [COMMAND]` and the exit code: the page of the program, or of one command.
pub fn man_report(name: Option<&str>) -> (String, u8) {
    let mut program = Cli::command().disable_help_subcommand(true);
    // Names the pages of commands toolrein-COMMAND.
    program.build();
    let command = match name {
        None => &program,
        Some(name) => match program.find_subcommand(name) {
            Some(command) => command,
            None => {
                return (
                    format!("{name}: there is no such command; toolrein --help lists them\n"),
                    EXIT_REFUSED,
                );
            }
        },
    };
    let mut page = Vec::new();
    // A vector accepts every write.
    let _ = Man::new(command.clone()).manual("toolrein").render(&mut page);
    // The text after the options is laid out by hand: examples in columns, which filling would join to paragraphs.
    let page = String::from_utf8_lossy(&page).replace("\n.SH EXTRA\n", "\n.SH NOTES\n.nf\n");
    (page.replace("\n.SH VERSION\n", "\n.fi\n.SH VERSION\n"), 0)
}
