// Names of tables and functions for messages, and one pointer for each extension; generated from table_functions.hpp.
#pragma once

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/abi/table_functions.hpp"

namespace anyaccel {

// "" for the core, the extension's name for the others.
template <class Table>
inline constexpr const char* table_name = "";
#define ANYACCEL_TABLE_NAME(member, table, name, version, functions) \
  template <>                                                        \
  inline constexpr const char* table_name<table> = name;
ANYACCEL_EXTENSIONS(ANYACCEL_TABLE_NAME)
#undef ANYACCEL_TABLE_NAME

// The name of a function for messages: member_name<&aa_driver::probe> is "probe".
template <auto Member>
inline constexpr const char* member_name = nullptr;

#define ANYACCEL_MEMBER_NAME(table, member, need) \
  template <>                                     \
  inline constexpr const char* member_name<&table::member> = #member;
ANYACCEL_ALL_FUNCTIONS(ANYACCEL_MEMBER_NAME)
#undef ANYACCEL_MEMBER_NAME

// One pointer for each extension; null where the driver does not have it.
struct ExtensionTables {
#define ANYACCEL_TABLE_POINTER(member, table, name, version, functions) const abi::Calls<table>* member = nullptr;
  ANYACCEL_EXTENSIONS(ANYACCEL_TABLE_POINTER)
#undef ANYACCEL_TABLE_POINTER
};

}  // namespace anyaccel
