// The filters of Jinja that work on sequences; jinja_filters.cpp has the others and calls these.
#pragma once

#include <string_view>

#include "llm/chat/jinja_interpreter.h"
#include "llm/chat/jinja_value.h"

// Each function is the filter of its name, applied to `value`.
namespace anyaccel::llm::jinja::sequence_filters {

// The filters select, reject, selectattr and rejectattr.
Value choose(Interpreter& interpreter, std::string_view filter, const Value& value, const Arguments& arguments);
Value map(Interpreter& interpreter, const Value& value, const Arguments& arguments);
Value sort(Interpreter& interpreter, const Value& value, const Arguments& arguments);
Value dictsort(Interpreter& interpreter, const Value& value, const Arguments& arguments);
Value unique(Interpreter& interpreter, const Value& value, const Arguments& arguments);
Value group_by(Interpreter& interpreter, const Value& value, const Arguments& arguments);
// The filters min and max.
Value smallest(Interpreter& interpreter, std::string_view filter, const Value& value, const Arguments& arguments);
Value join(Interpreter& interpreter, const Value& value, const Arguments& arguments);
Value sum(Interpreter& interpreter, const Value& value, const Arguments& arguments);
Value batch(Interpreter& interpreter, const Value& value, const Arguments& arguments);

}  // namespace anyaccel::llm::jinja::sequence_filters
