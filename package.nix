# The command, the library and its headers, for Nix:
#
#   nix-build -E 'with import <nixpkgs> {}; callPackage ./package.nix { }'
#
# Needs a nixpkgs whose Rust is at least the `rust-version` of Cargo.toml.
{ lib, rustPlatform }:

let
  manifest = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package;
in
rustPlatform.buildRustPackage {
  pname = "flagstone";
  version = manifest.version;

  src = lib.cleanSource ./.;
  cargoLock.lockFile = ./Cargo.lock;

  # Debug information is for whoever works on it; the tests start programs of other packages.
  buildPhase = ''
    runHook preBuild
    cargo build --release --offline -p flagstone-malloc -p flagstone-cli
    runHook postBuild
  '';
  doCheck = false;

  # The same tree as on other systems, and what the command says of itself.
  installPhase = ''
    runHook preInstall
    cargo xtask install --prefix "$out"
    cargo xtask man texts
    install -D -m 644 -t "$out/share/man/man1" texts/man1/*.1
    install -D -m 644 texts/completions/flagstone.bash \
      "$out/share/bash-completion/completions/flagstone"
    runHook postInstall
  '';

  meta = {
    description = "A memory allocator in the shape of the Linux slab and page allocators";
    homepage = manifest.repository;
    license = with lib.licenses; [
      mit
      asl20
    ];
    platforms = [
      "x86_64-linux"
      "aarch64-linux"
    ];
    mainProgram = "flagstone";
  };
}
