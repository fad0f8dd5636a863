// Implements Python's two ways to format text: str.format() and the operator %.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "llm/chat/jinja_interpreter.h"
#include "llm/chat/python_text.h"

namespace anyaccel::llm::jinja {

std::string format_braces(Interpreter& interpreter, const std::string& format, const Arguments& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c == '}') {
      if (i + 1 >= format.size() || format[i + 1] != '}') throw TemplateError("'format()': a single '}' in the text");
      ++i;
    }
    if (c != '{' || (i + 1 < format.size() && format[i + 1] == '{')) {
      out += c;
      if (c == '{') ++i;
      continue;
    }
    const size_t end = format.find('}', i);
    if (end == std::string::npos) throw TemplateError("'format()': a '{' without '}'");
    const std::string field = format.substr(i + 1, end - i - 1);
    i = end;
    if (field.find_first_of(":!.[{") != std::string::npos) {
      throw TemplateError("'format()': the field '{" + field + "}' is not supported; {}, {0} and {name} are");
    }
    size_t index = 0;
    const auto number = std::from_chars(field.data(), field.data() + field.size(), index);
    if (field.empty() || (number.ec == std::errc() && number.ptr == field.data() + field.size())) {
      if (field.empty()) index = next++;
      if (index >= arguments.positional.size())
        throw TemplateError("'format()' has no argument " + std::to_string(index));
      out += to_text(arguments.positional[index]);
    } else {
      const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                      [&](const auto& named) { return named.first == field; });
      if (found == arguments.named.end()) throw TemplateError("'format()' has no argument '" + field + "'");
      out += to_text(found->second);
    }
    interpreter.check_size(out.size());
    interpreter.charge(out.size() / 64);
  }
  return out;
}

std::string format_percent(Interpreter& interpreter, std::string_view format, const Value& arguments) {
  std::string out;
  size_t next = 0;
  const List* places = arguments.items() != nullptr && arguments.list() == nullptr ? arguments.items() : nullptr;
  const auto argument = [&]() -> Value {
    if (places == nullptr && next++ == 0) return arguments;
    if (places == nullptr || next >= places->size()) throw TemplateError("'%': not enough arguments");
    return (*places)[next++];
  };
  bool by_name = false;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    Value value;
    bool has_value = false;
    if (++i < format.size() && format[i] == '(') {
      const size_t end = format.find(')', i);
      if (end == std::string_view::npos || arguments.dict() == nullptr)
        throw TemplateError("'%': %(name) needs a dict");
      const Value* found = arguments.dict()->member(format.substr(i + 1, end - i - 1));
      if (found == nullptr)
        throw TemplateError("'%': the dict has no '" + std::string(format.substr(i + 1, end - i - 1)) + "'");
      value = *found;
      has_value = by_name = true;
      i = end + 1;
    }
    std::string spec = "%";
    while (i < format.size() && std::string_view("-+ 0123456789.").find(format[i]) != std::string_view::npos) {
      spec += format[i++];
    }
    if (i >= format.size() || spec.size() > 8) throw TemplateError("'%': a conversion that is not supported");
    const char kind = format[i];
    if (kind == '%') {
      out += '%';
      continue;
    }
    if (!has_value) value = argument();
    if (kind == 's' || kind == 'r') {
      const std::string text = kind == 's' ? to_text(value) : to_repr(value);
      if (spec != "%" && code_points(text) != text.size())
        throw TemplateError("'%': a width with such text is not supported");
      if (spec == "%") {
        out += text;
      } else {
        std::vector<char> buffer(text.size() + 100'000);
        const int length = std::snprintf(buffer.data(), buffer.size(), (spec + "s").c_str(), text.c_str());
        if (length < 0 || static_cast<size_t>(length) >= buffer.size())
          throw TemplateError("'%': the width is too large");
        out.append(buffer.data(), static_cast<size_t>(length));
      }
    } else if (kind == 'd' || kind == 'i' || kind == 'x' || kind == 'X' || kind == 'f' || kind == 'e' || kind == 'g') {
      require_defined(value);
      if (!value.is_number()) throw TemplateError("'%': a number is needed, not " + type_name(value));
      char buffer[1200];
      int length = 0;
      const bool whole_kind = kind == 'd' || kind == 'i' || kind == 'x' || kind == 'X';
      if (whole_kind) {
        long long number = 0;
        if (const auto* whole = std::get_if<int64_t>(&value.data)) {
          number = *whole;
        } else if (const auto* flag = std::get_if<bool>(&value.data)) {
          number = *flag ? 1 : 0;
        } else {
          const double real = std::get<double>(value.data);
          if (kind == 'x' || kind == 'X' || !(std::abs(real) < 9.2e18))
            throw TemplateError("'%': an int is needed, not float");
          number = static_cast<long long>(real);
        }
        if (number < 0 && (kind == 'x' || kind == 'X')) throw TemplateError("'%': a negative hexadecimal number");
        length = std::snprintf(buffer, sizeof buffer, (spec + "ll" + kind).c_str(), number);
      } else {
        const double real = std::holds_alternative<double>(value.data) ? std::get<double>(value.data)
                            : std::holds_alternative<int64_t>(value.data)
                                ? static_cast<double>(std::get<int64_t>(value.data))
                                : (std::get<bool>(value.data) ? 1.0 : 0.0);
        length = std::snprintf(buffer, sizeof buffer, (spec + kind).c_str(), real);
      }
      if (length < 0 || static_cast<size_t>(length) >= sizeof buffer)
        throw TemplateError("'%': the width is too large");
      out.append(buffer, static_cast<size_t>(length));
    } else {
      throw TemplateError(std::string("'%': the conversion %") + kind + " is not supported");
    }
    interpreter.check_size(out.size());
    interpreter.charge(out.size() / 64);
  }
  const bool all_used =
      by_name || arguments.dict() != nullptr || (places != nullptr ? next == places->size() : next > 0);
  if (!all_used) throw TemplateError("'%': not all arguments are used");
  return out;
}

}  // namespace anyaccel::llm::jinja
