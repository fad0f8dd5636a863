# Compiles $3, which compares declarations of ours with a vendor's headers, with the compiler $1 and the source folder $2. The
# headers' folders follow, unless the compiler finds the headers; patterns are expanded, because the folder of Python packages has Python's version in its name.
compiler=$1 source=$2 file=$3
shift 3
includes=
# shellcheck disable=SC2048
for folder in $*; do
  [ -d "$folder" ] || { echo "skipped: there is no folder $folder of vendor's headers"; exit 77; }
  includes="$includes -isystem $folder"
done
# Only the absence of the vendor's header, the first one that the file includes, is no failure.
header=$(sed -n 's/^#include <\(.*\)>$/\1/p' "$source/tests/$file" | head -1)
if [ -z "$includes" ] && ! printf '#if __has_include(<%s>)\nfound\n#endif\n' "$header" | "$compiler" -x c++ -E - | grep -q ^found; then
  echo "skipped: the compiler does not find $header"
  exit 77
fi
# shellcheck disable=SC2086
exec "$compiler" -std=c++20 -fsyntax-only -I"$source/src" -I"$source/include" $includes "$source/tests/$file"
