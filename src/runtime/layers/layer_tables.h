// Code that all layers use: tables whose `self` is the layer's state for one driver.
//
// A layer is a class with
//
//     struct State;                                                    what it keeps for each driver
//     template <auto Member, class... Args>
//     static aa_status* call(LayerState<Layer>& layer, Args... args);  the layer's version of each function
//
// and calls layer.next<Member>(args...) to go on to the driver or the next layer. Extensions that this host does not
// know are passed through unchanged: handles are the driver's own, so they work.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "anyaccel/error.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/driver/table_members.h"

namespace anyaccel::layers {

template <auto Member>
struct MemberTraits;
template <class T, class... Args, aa_status* (*T::*Member)(void*, Args...)>
struct MemberTraits<Member> {
  using Table = T;
};
template <auto Member>
using TableOf = typename MemberTraits<Member>::Table;

// All tables of one driver, by value: the layer's own.
struct OwnTables {
  abi::DriverCalls driver{};
#define ANYACCEL_OWN_TABLE(member, table, name, version, functions) abi::Calls<table> member{};
  ANYACCEL_EXTENSIONS(ANYACCEL_OWN_TABLE)
#undef ANYACCEL_OWN_TABLE
};

// All tables of the driver (or layer) below; extensions are null until they have been asked for.
struct NextTables : ExtensionTables {
  const abi::DriverCalls* driver = nullptr;
};

inline const aa_driver* table_of(const NextTables& tables, const aa_driver*) { return tables.driver; }
inline aa_driver& table_of(OwnTables& tables, const aa_driver*) { return tables.driver; }
#define ANYACCEL_TABLE_OF(member, table, name, version, functions)                               \
  inline const table* table_of(const NextTables& tables, const table*) { return tables.member; } \
  inline table& table_of(OwnTables& tables, const table*) { return tables.member; }
ANYACCEL_EXTENSIONS(ANYACCEL_TABLE_OF)
#undef ANYACCEL_TABLE_OF

template <class Layer>
struct LayerState {
  NextTables below;
  OwnTables own;
  typename Layer::State state;

  template <auto Member, class... Args>
  aa_status* next(Args... args) const {
    const auto* table = table_of(below, static_cast<const TableOf<Member>*>(nullptr));
    return (table->*Member)(table->self, args...);
  }

  // The layer's own answer to query_extension: asks below, and puts the layer's table before the one that is found.
  aa_status* find_extension(aa_instance* instance, const char* name, uint32_t min_version, const void** out_table) {
    const void* raw = nullptr;
    aa_status* status = below.driver->query_extension(instance, name, min_version, &raw);
    if (status) return status;
    const std::string_view wanted = name;
    *out_table = raw;
#define ANYACCEL_WRAP(member, table, extension_name, version, functions) \
  wrap<table>(wanted, raw, out_table, below.member, own.member);
    ANYACCEL_EXTENSIONS(ANYACCEL_WRAP)
#undef ANYACCEL_WRAP
    return nullptr;
  }

 private:
  template <class Table>
  void wrap(std::string_view wanted, const void* raw, const void** out_table, const abi::Calls<Table>*& found,
            abi::Calls<Table>& mine) {
    if (wanted != table_name<Table> || !raw) return;
    const std::lock_guard lock(extensions_mutex_);
    // Written only once: a second query must not race with calls that already use the table.
    if (!found) {
      found = complete_extension(static_cast<const Table*>(raw), below.driver->name);
      if (found) mine.version = found->version;
    }
    *out_table = found ? &mine : nullptr;
  }

  std::mutex extensions_mutex_;
};

// A function of the layer's tables.
template <class Layer, auto Member>
struct Entry;

template <class Layer, class Table, class... Args, aa_status* (*Table::*Member)(void*, Args...)>
struct Entry<Layer, Member> {
  static aa_status* call(void* self, Args... args) noexcept {
    try {
      return Layer::template call<Member>(*static_cast<LayerState<Layer>*>(self), args...);
    } catch (...) {
      return status_from_current_exception();
    }
  }
};

// Puts the layer in front of a table. The result lives until the process ends, and is the same for the same table.
template <class Layer>
const abi::DriverCalls* wrap(const abi::DriverCalls* table) {
  static std::mutex& mutex = *new std::mutex;
  static auto& made = *new std::map<const abi::DriverCalls*, LayerState<Layer>*>;
  const std::lock_guard lock(mutex);
  LayerState<Layer>*& layer = made[table];
  if (!layer) {
    layer = new LayerState<Layer>;
    layer->below.driver = table;
    // The driver's data members and the layer's functions.
    static_cast<aa_driver&>(layer->own.driver) = *table;
    layer->own.driver.self = layer;
#define ANYACCEL_SET(type, function, need) \
  table_of(layer->own, static_cast<type*>(nullptr)).function = &Entry<Layer, &type::function>::call;
    ANYACCEL_ALL_FUNCTIONS(ANYACCEL_SET)
#undef ANYACCEL_SET
#define ANYACCEL_HEAD(member, table_type, name, version, functions) \
  layer->own.member.struct_size = sizeof(table_type);               \
  layer->own.member.self = layer;
    ANYACCEL_EXTENSIONS(ANYACCEL_HEAD)
#undef ANYACCEL_HEAD
  }
  return &layer->own.driver;
}

}  // namespace anyaccel::layers
