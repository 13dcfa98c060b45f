# An image with the command, the library and its headers. From the sources as they are committed, so that the
# version names the commit:
#
#   git archive --format=tar HEAD | docker build -t flagstone -
#   docker run --rm flagstone --version
#   docker run --rm -v "$PWD:/work" -w /work flagstone run -- ./app      an app for Debian 12's C library
#
# To put the allocator under another image, copy the library out of this one: docs/install.md.
FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo xtask install --prefix /usr --destdir /out \
    && cargo xtask man /tmp/texts \
    && install -D -m 644 -t /out/usr/share/man/man1 /tmp/texts/man1/*.1 \
    && install -D -m 644 /tmp/texts/completions/flagstone.bash \
        /out/usr/share/bash-completion/completions/flagstone \
    && strip --strip-debug /out/usr/bin/flagstone /out/usr/lib/libflagstone.so.0

FROM docker.io/library/debian:bookworm-slim
COPY --from=build /out/usr /usr
RUN ldconfig
ENTRYPOINT ["flagstone"]
