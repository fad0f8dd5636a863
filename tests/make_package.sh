# Makes the tarball of tools/package once for the tests that unpack it: sh make_package.sh SOURCE BUILD. It is
# compressed less than the one that is distributed.
command -v dpkg >/dev/null || { echo "skipped: no dpkg, which tells the libraries' packages"; exit 77; }
rm -rf "$2/tested_package"
umask 077
XZ_OPT="-0 -T0" exec sh "$1/tools/package" "$2/tested_package"
