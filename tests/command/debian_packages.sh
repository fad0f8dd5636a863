# The Debian packages, installed by dpkg into folders that hold nothing but the packages that they depend on (copied from this
# machine): the command shows the accelerators and generates text, and a program compiles with the development package.
anyaccel=$1
source=$2
build=$3
fail() { echo "FAILED: $1"; exit 1; }
skip() { echo "skipped: $1"; exit 77; }
[ "$build" = "$source/build/release" ] || skip "the packages are made from build/release"
[ -w "$build" ] || skip "cpack writes a list of files to $build, which is not writable"
for program in cpack dpkg dpkg-shlibdeps file apt-cache chroot unshare; do
  command -v $program >/dev/null || skip "$program is not installed"
done
[ "$(id -u)" = 0 ] || skip "only root may install packages into a folder and run them there (chroot)"
unshare -m true 2>/dev/null || skip "mount namespaces are not allowed here, which give the folder its /proc and /dev"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if PATH=$folder "$(command -v sh)" "$source/tools/debian_packages" "$folder/packages" >"$folder/log" 2>&1; then
  fail "packages were made without dpkg-shlibdeps"
fi
grep -q "dpkg-shlibdeps is not installed" "$folder/log" || fail "without dpkg-shlibdeps: $(cat "$folder/log")"
(umask 077; sh "$source/tools/debian_packages" "$folder/packages") >"$folder/log" 2>&1 || fail "tools/debian_packages: $(cat "$folder/log")"
[ "$(ls "$folder"/packages/*.deb | wc -l)" = 3 ] || fail "not three packages: $(ls "$folder/packages")"
package() { echo "$folder/packages/$1"_[0-9]*.deb; }
for file in "$folder"/packages/*.deb; do
  unreadable=$(dpkg-deb --contents "$file" | grep -vE '^(-r..r..r..|drwxr-xr-x|l)' | head -3)
  [ -z "$unreadable" ] || fail "not everybody may read what is in $file: $unreadable"
done

# The installed packages among those that the named ones need, these included.
closure() {
  apt-cache depends --installed --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
    grep '^[a-z0-9]' | sort -u | while read -r name; do
      [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" != installed ] || echo "$name"
    done
}

# (What is essential to Debian, a shell and ldconfig for the scripts of packages, no package depends on.)
#
# make_root ROOT PACKAGE...: a folder with the files of the packages and of what they need, and dpkg's records of them.
make_root() {
  root=$1
  shift
  mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/proc" "$root/dev" "$root/tmp" "$root/var/lib/dpkg/info"
  for name in bin sbin lib lib64; do
    ln -s "usr/$name" "$root/$name"
  done
  ln -s dash "$root/usr/bin/sh"
  closure "$@" >"$folder/closure"
  : >"$root/var/lib/dpkg/available"
  while read -r name; do
    dpkg-query -s "$name" && echo
  done <"$folder/closure" >"$root/var/lib/dpkg/status"
  while read -r name; do
    dpkg-query -L "$name"
  done <"$folder/closure" | sort -u | while read -r file; do
    case $file in
      /usr/share/doc/* | /usr/share/locale/* | /usr/share/man/*) ;;
      *) [ -d "$file" ] && [ ! -L "$file" ] || [ ! -e "$file" ] || echo "$file" ;;
    esac
  done >"$folder/files"
  tar -C / -c --no-recursion -T "$folder/files" 2>"$folder/err" | tar -C "$root" -x --keep-directory-symlink ||
    fail "copying $*: $(cat "$folder/err")"
}

# inside ROOT COMMAND...: runs it with ROOT as the root, and with /proc and /dev.
inside() {
  root=$1
  shift
  env -i PATH=/usr/sbin:/usr/bin HOME=/tmp DS_ACCELERATOR=cpu unshare -m sh -c '
    mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"' "$root" "$@"
}

depends() { dpkg-deb -f "$(package "$1")" Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/ //g; s/libanyaccel\(,\|$\)//' | tr ',' ' '; }
# shellcheck disable=SC2046
make_root "$folder/tools" $(depends libanyaccel) $(depends anyaccel-tools) dash libc-bin
dpkg --root="$folder/tools" -i "$(package libanyaccel)" "$(package anyaccel-tools)" >"$folder/log" 2>&1 ||
  fail "installing: $(cat "$folder/log")"
inside "$folder/tools" anyaccel info >"$folder/out" 2>"$folder/err" || fail "info: $(cat "$folder/err")"
grep -q 'cpu' "$folder/out" || fail "info: $(cat "$folder/out")"
text=$(inside "$folder/tools" anyaccel generate --model /usr/share/anyaccel/models/stories --prompt "Once upon a time" \
  --max-new-tokens 8 2>"$folder/err") || fail "generate: $(cat "$folder/err")"
here=$(DS_ACCELERATOR=cpu "$anyaccel" generate --model "$source/models/stories" --prompt "Once upon a time" --max-new-tokens 8 2>/dev/null)
[ "$text" = "$here" ] || fail "another text: $text"
for file in share/bash-completion/completions/anyaccel share/zsh/site-functions/_anyaccel; do
  [ -s "$folder/tools/usr/$file" ] || fail "/usr/$file is missing"
done
dpkg --root="$folder/tools" -r anyaccel-tools libanyaccel >"$folder/log" 2>&1 || fail "removing: $(cat "$folder/log")"
left=$(find "$folder/tools/usr" -path '*anyaccel*')
[ -z "$left" ] || fail "removing the packages leaves $left"

# shellcheck disable=SC2046
make_root "$folder/dev" $(depends libanyaccel) $(depends libanyaccel-dev) g++ pkg-config dash libc-bin
dpkg --root="$folder/dev" -i "$(package libanyaccel)" "$(package libanyaccel-dev)" >"$folder/log" 2>&1 ||
  fail "installing: $(cat "$folder/log")"
cat >"$folder/dev/tmp/main.cpp" <<'C'
#include <anyaccel/accelerator.h>
#include <anyaccel/op_builder.h>
#include <anyaccel/ops/cpu_adam.h>
#include <cstdio>
int main() {  // an op that is compiled here, from the sources and headers of the packages
  using namespace anyaccel;
  get_accelerator()->create_op_builder("CPUAdamBuilder")->load_as<ops::CPUAdam>();
  std::puts(get_accelerator()->op_builder_dir().c_str());
}
C
inside "$folder/dev" sh -c 'cd /tmp && g++ main.cpp -o main $(pkg-config --cflags --libs anyaccel)' >"$folder/log" 2>&1 ||
  fail "compiling: $(cat "$folder/log")"
[ "$(inside "$folder/dev" sh -c "CXX=g++ exec /tmp/main" 2>"$folder/err")" = /usr/share/anyaccel/kernels ] || fail "running: $(cat "$folder/err")"
echo "Debian packages: ok"
