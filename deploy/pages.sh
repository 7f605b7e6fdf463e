#!/bin/sh
# Has a program write its manual pages and completions into target/pages: pages.sh PROGRAM, from the project's root.
set -eu

program=$1
pages=target/pages
rm -rf "$pages"
mkdir -p "$pages"
"$program" man > "$pages/toolrein.1"
for command in $(sed -n 's/^toolrein\\-\([a-z-]*\)(1)$/\1/p' "$pages/toolrein.1"); do
    "$program" man "$command" > "$pages/toolrein-$command.1"
done
"$program" completions bash > "$pages/toolrein.bash"
"$program" completions zsh > "$pages/_toolrein"
"$program" completions fish > "$pages/toolrein.fish"
