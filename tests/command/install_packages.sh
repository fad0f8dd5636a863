# Of packages whose names differ between releases, tools/install_packages asks for the one that this release has, and for none if
# one is installed. Stand-ins of dpkg-query and apt-cache play the release; the user is not root.
source=$2
fail() { echo "FAILED: $1"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
# dpkg-query -W -f FORMAT NAME, and apt-cache policy NAME
cat >"$folder/bin/dpkg-query" <<'C'
#!/bin/sh
case $4 in there | there-15) printf installed ;; *) exit 1 ;; esac
C
cat >"$folder/bin/apt-cache" <<'C'
#!/bin/sh
case ${2:-} in
  "") [ -z "$LISTS" ] || echo ' 500 http://deb.debian.org/debian release/main amd64 Packages' ;;
  wanted | wanted-15) printf '%s:\n  Installed: (none)\n  Candidate: 1.0-1\n' "$2" ;;
  virtual) printf 'virtual:\n  Installed: (none)\n  Candidate: (none)\n' ;;
esac
C
printf '#!/bin/sh\necho 1000\n' >"$folder/bin/id"
chmod +x "$folder"/bin/*

# asked LINE: the packages that it asks for
asked() {
  printf '# of releases a | b\n%s\n' "$1" >"$folder/list"
  LISTS=${LISTS:-} PATH=$folder/bin:$PATH sh "$source/tools/install_packages" "$folder/list" 2>"$folder/err"
  sed -n 's/^  sudo apt-get install -y *//p' "$folder/err"
}
[ "$(asked wanted)" = wanted ] || fail "one name: $(cat "$folder/err")"
[ "$(asked there)" = "" ] || fail "an installed one: $(cat "$folder/err")"
[ "$(asked 'wanted-14 | wanted-15')" = wanted-15 ] || fail "the name of another release: $(cat "$folder/err")"
[ "$(asked 'virtual | wanted-15 | wanted')" = wanted-15 ] || fail "the first of several: $(cat "$folder/err")"
[ "$(asked 'wanted | there-15')" = "" ] || fail "another one is installed: $(cat "$folder/err")"
[ "$(asked 'new-14 | new-15')" = new-14 ] || fail "before the lists of packages were fetched: $(cat "$folder/err")"
[ "$(LISTS=1; asked 'new-14')" = "" ] || fail "a package that this release lacks: $(cat "$folder/err")"
grep -q "apt has no package new-14" "$folder/err" || fail "a package that this release lacks: $(cat "$folder/err")"
LISTS=1 PATH=$folder/bin:$PATH sh "$source/tools/install_packages" "$folder/list" 2>"$folder/err" ||
  fail "the lack of a package is an error: $(cat "$folder/err")"
echo "install_packages: ok"
