# Formula for Homebrew, of a release that has these archives; deploy/install/fill.py writes version, address and checksums.
class Toolrein < Formula
  desc "@DESCRIPTION@"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "@DOWNLOADS@/v@VERSION@/toolrein-@VERSION@-aarch64-apple-darwin.tar.gz"
      sha256 "@SHA256 aarch64-apple-darwin@"
    end
    on_intel do
      url "@DOWNLOADS@/v@VERSION@/toolrein-@VERSION@-x86_64-apple-darwin.tar.gz"
      sha256 "@SHA256 x86_64-apple-darwin@"
    end
  end

  on_linux do
    on_arm do
      url "@DOWNLOADS@/v@VERSION@/toolrein-@VERSION@-aarch64-unknown-linux-musl.tar.gz"
      sha256 "@SHA256 aarch64-unknown-linux-musl@"
    end
    on_intel do
      url "@DOWNLOADS@/v@VERSION@/toolrein-@VERSION@-x86_64-unknown-linux-musl.tar.gz"
      sha256 "@SHA256 x86_64-unknown-linux-musl@"
    end
  end

  def install
    bin.install "toolrein"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/toolrein.bash" => "toolrein"
    zsh_completion.install "completions/_toolrein"
    fish_completion.install "completions/toolrein.fish"
  end

  test do
    assert_match "4 of 4 scenes answered", shell_output("#{bin}/toolrein demo --once --listen 127.0.0.1:0 --admin 127.0.0.1:0")
  end
end
