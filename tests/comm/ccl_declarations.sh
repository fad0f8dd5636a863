# Compiles ccl_declarations.cpp with the compiler $1 against oneCCL's headers in the folder $3.
[ -e "$3/include/oneapi/ccl.h" ] || { echo "skipped: $3/include has no oneapi/ccl.h"; exit 77; }
exec "$1" -std=c++20 -fsyntax-only -I"$2/src" -I"$2/include" -isystem "$3/include" "$2/tests/comm/ccl_declarations.cpp"
