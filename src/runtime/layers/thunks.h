// What all layers share: tables whose functions know which driver they stand before.
//
// The functions of a table get no pointer to their table, and some of them (probe, initialize) no handle either. So
// each driver that gets a layer takes a slot, and every slot has functions of its own, generated here, that pass the
// slot on. A layer is a class with
//
//     struct State;                                                    what it keeps for each driver
//     template <auto Member, class... Args>
//     static aa_status* call(LayerSlot<Layer>& slot, Args... args);    the layer's version of each function
//
// and calls slot.next_function<Member>()(args...) to go on to the driver or the next layer.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <utility>

#include "anyaccel/error.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/driver/table_members.h"

namespace anyaccel::layers {

// Drivers in one process that can have the same layer.
inline constexpr int max_slots = 8;

// All tables of one driver, by value: the layer's own.
struct OwnTables {
  aa_driver driver;
#define ANYACCEL_OWN_TABLE(member, table, name, version, functions) table member;
  ANYACCEL_EXTENSIONS(ANYACCEL_OWN_TABLE)
#undef ANYACCEL_OWN_TABLE
};

// All tables of the driver (or layer) below; extensions are null until they have been asked for.
struct NextTables : ExtensionTables {
  const aa_driver* driver = nullptr;
};

inline const aa_driver* table_of(const NextTables& tables, const aa_driver*) { return tables.driver; }
inline aa_driver& table_of(OwnTables& tables, const aa_driver*) { return tables.driver; }
#define ANYACCEL_TABLE_OF(member, table, name, version, functions)                               \
  inline const table* table_of(const NextTables& tables, const table*) { return tables.member; } \
  inline table& table_of(OwnTables& tables, const table*) { return tables.member; }
ANYACCEL_EXTENSIONS(ANYACCEL_TABLE_OF)
#undef ANYACCEL_TABLE_OF

template <auto Member>
struct MemberTraits;
template <class T, class... Args, aa_status* (*T::*Member)(Args...)>
struct MemberTraits<Member> {
  using Table = T;
};
template <auto Member>
using TableOf = typename MemberTraits<Member>::Table;

template <class Layer>
struct LayerSlot {
  NextTables next;
  OwnTables own;
  typename Layer::State state;

  template <auto Member>
  auto next_function() const noexcept {
    using Table = TableOf<Member>;
    return table_of(next, static_cast<const Table*>(nullptr))->*Member;
  }

  // The layer's own answer to query_extension: asks below, and puts the layer's table before the one that is found.
  // Extensions this host does not know pass through: handles are the driver's own, so they work.
  aa_status* find_extension(aa_instance* instance, const char* name, uint32_t min_version, const void** out_table) {
    const void* raw = nullptr;
    aa_status* status = next.driver->query_extension(instance, name, min_version, &raw);
    if (status) return status;
    const std::string_view wanted = name;
    *out_table = raw;
#define ANYACCEL_WRAP(member, table, extension_name, version, functions) \
  wrap(wanted, raw, out_table, next.member, own.member);
    ANYACCEL_EXTENSIONS(ANYACCEL_WRAP)
#undef ANYACCEL_WRAP
    return nullptr;
  }

 private:
  template <class Table>
  void wrap(std::string_view wanted, const void* raw, const void** out_table, const Table*& below, Table& mine) {
    if (wanted != table_name<Table> || !raw) return;
    static std::mutex& mutex = *new std::mutex;
    std::lock_guard lock(mutex);
    // Written once: a second question must not race with calls that go through the table already.
    if (!below) {
      below = complete_extension(static_cast<const Table*>(raw), next.driver->name);
      if (below) mine.version = below->version;
    }
    *out_table = below ? &mine : nullptr;
  }
};

template <class Layer>
std::array<LayerSlot<Layer>, max_slots>& slots() {
  static auto& all = *new std::array<LayerSlot<Layer>, max_slots>;
  return all;
}

// One copy for all slots; the thunks only add the slot.
template <class Layer, auto Member, class... Args>
[[gnu::noinline]] aa_status* guarded_call(LayerSlot<Layer>& slot, Args... args) noexcept {
  try {
    return Layer::template call<Member>(slot, args...);
  } catch (...) {
    return status_from_current_exception();
  }
}

template <class Layer, auto Member, int Index>
struct Thunk;

template <class Layer, int Index, class Table, class... Args, aa_status* (*Table::*Member)(Args...)>
struct Thunk<Layer, Member, Index> {
  static aa_status* call(Args... args) noexcept { return guarded_call<Layer, Member>(slots<Layer>()[Index], args...); }
};

template <class Layer, int Index>
OwnTables make_tables() noexcept {
  OwnTables own{};
#define ANYACCEL_SET(type, function, need) \
  table_of(own, static_cast<type*>(nullptr)).function = &Thunk<Layer, &type::function, Index>::call;
  ANYACCEL_ALL_FUNCTIONS(ANYACCEL_SET)
#undef ANYACCEL_SET
#define ANYACCEL_SIZE(member, table, name, version, functions) own.member.struct_size = sizeof(table);
  ANYACCEL_EXTENSIONS(ANYACCEL_SIZE)
#undef ANYACCEL_SIZE
  return own;
}

// Puts the layer before a table: in the slot the table has already, or in a new one.
template <class Layer>
const aa_driver* wrap(const aa_driver* table) {
  static std::mutex& mutex = *new std::mutex;
  static int used = 0;
  std::lock_guard lock(mutex);
  for (int i = 0; i < used; ++i) {
    if (slots<Layer>()[i].next.driver == table) return &slots<Layer>()[i].own.driver;
  }
  if (used == max_slots) {
    throw InvalidArgument("ANYACCEL_LAYERS: more than " + std::to_string(max_slots) +
                          " drivers in this process; layers are for fewer");
  }
  constexpr auto makers = []<int... Index>(std::integer_sequence<int, Index...>) {
    return std::array<OwnTables (*)() noexcept, max_slots>{&make_tables<Layer, Index>...};
  }
  (std::make_integer_sequence<int, max_slots>{});
  auto& slot = slots<Layer>()[used];
  slot.next.driver = table;
  // The facts of the driver and the functions of the layer.
  slot.own = makers[used]();
  aa_driver own = *table;
#define ANYACCEL_TAKE(type, member, need) own.member = slot.own.driver.member;
  ANYACCEL_DRIVER_FUNCTIONS(ANYACCEL_TAKE)
#undef ANYACCEL_TAKE
  slot.own.driver = own;
  ++used;
  return &slot.own.driver;
}

}  // namespace anyaccel::layers
