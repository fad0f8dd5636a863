// Implements the evaluation of expressions and blocks; the operators on values are in jinja_operators.cpp.
#include "llm/chat/jinja_interpreter.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text/json.h"
#include "base/text/utf8.h"
#include "llm/chat/python_text.h"

namespace anyaccel::llm::jinja {

namespace {

// A conversation of ten thousand messages takes a few hundred thousand steps. A step is some 100 ns.
constexpr size_t max_steps = 20'000'000;
constexpr size_t steps_of_macro = 1000;  // its scope is kept until the template has run
// Maximum nesting of blocks, expressions and calls; each level uses a few hundred bytes of stack.
constexpr int max_stack = 1000;

// An error with its position: errors get the line of the innermost expression that knows one.
class LocatedError : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

template <typename Action>
auto at_line(int line, Action action) {
  try {
    return action();
  } catch (const LocatedError&) {
    throw;
  } catch (const RejectedByTemplate&) {
    throw;
  } catch (const TemplateError& error) {
    throw LocatedError("line " + std::to_string(line) + ": " + error.what());
  }
}

}  // namespace

class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.depth_ <= max_stack) return;
    --interpreter_.depth_;
    throw TemplateError("blocks and calls are nested more than " + std::to_string(max_stack) + " deep");
  }
  ~Depth() { --interpreter_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Interpreter& interpreter_;
};

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    const auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return &found->second;
  }
  return nullptr;
}

Interpreter::Interpreter() : globals_(std::make_shared<Scope>()) { add_globals(*globals_); }

std::string Interpreter::run(const Body& body, const Dict& variables) {
  auto scope = std::make_shared<Scope>();
  scope->parent = globals_;
  for (const auto& [name, value] : variables.members) scope->variables[*name.text()] = value;
  std::string out;
  steps_ = 0;
  // Macros hold references to the scopes that hold them, so these cycles are broken here.
  struct Release {
    std::vector<std::shared_ptr<Scope>>& scopes;
    ~Release() {
      for (const auto& held : scopes) held->variables.clear();
      scopes.clear();
    }
  } const release{scopes_of_macros_};
  scopes_of_macros_.push_back(scope);
  run_body(body, scope, out);
  return out;
}

void Interpreter::charge(size_t bytes) {
  steps_ += 1 + bytes / bytes_per_step;
  if (steps_ > max_steps) throw TemplateError("the template runs too long (more than 20 million steps)");
}

void Interpreter::check_size(size_t size) const {
  if (size > max_output)
    throw TemplateError("the template makes a text or list of more than 64 Mi characters or elements");
}

void Interpreter::append(std::string& out, std::string_view text) {
  check_size(out.size() + text.size());
  charge(text.size());
  out += text;
}

Interpreter::Flow Interpreter::run_body(const Body& body, const std::shared_ptr<Scope>& scope, std::string& out) {
  const Depth depth(*this);
  for (const auto& statement : body) {
    const Flow flow = run_statement(*statement, scope, out);
    if (flow != Flow::Next) return flow;
  }
  return Flow::Next;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement, const std::shared_ptr<Scope>& scope,
                                             std::string& out) {
  charge();
  const auto inner = [&] {
    auto made = std::make_shared<Scope>();
    made->parent = scope;
    return made;
  };
  const auto filtered_body = [&] {
    std::string text;
    run_body(statement.bodies[0], inner(), text);
    Value value(std::move(text));
    return statement.filters ? evaluate_filter(*statement.filters, &value, scope) : value;
  };
  switch (statement.kind) {
    case StatementKind::Text: append(out, statement.text); break;
    case StatementKind::Output: {
      const Value value = evaluate(*statement.expressions[0], scope);
      at_line(statement.line, [&] { append(out, to_text(value)); });
      break;
    }
    case StatementKind::If:
      for (size_t i = 0; i < statement.bodies.size(); ++i) {
        const bool chosen = i >= statement.expressions.size() || truth(evaluate(*statement.expressions[i], scope));
        if (chosen) return run_body(statement.bodies[i], scope, out);
      }
      break;
    case StatementKind::For: run_for(statement, scope, evaluate(*statement.expressions[0], scope), 1, out); break;
    case StatementKind::Set: {
      const Value value = evaluate(*statement.expressions[0], scope);
      at_line(statement.line, [&] { assign(statement.target, value, scope); });
      break;
    }
    case StatementKind::SetBlock: {
      const Value value = filtered_body();
      at_line(statement.line, [&] { assign(statement.target, value, scope); });
      break;
    }
    case StatementKind::Macro:
      charge(steps_of_macro * bytes_per_step);
      if (scopes_of_macros_.back() != scope) scopes_of_macros_.push_back(scope);
      scope->variables[statement.text] = make_macro(statement, statement.text, scope);
      break;
    case StatementKind::CallBlock: {
      const Expression& call_expression = *statement.expressions[0];
      Arguments values = arguments(call_expression, scope);
      values.named.emplace_back("caller", make_macro(statement, "caller", scope));
      const Value function = evaluate(*call_expression.children[0], scope);
      at_line(statement.line, [&] { append(out, to_text(call(function, values))); });
      break;
    }
    case StatementKind::FilterBlock: append(out, to_text(filtered_body())); break;
    case StatementKind::With: {
      const auto with = inner();
      for (const Parameter& parameter : statement.parameters) {
        with->variables[parameter.name] = evaluate(*parameter.value, scope);
      }
      return run_body(statement.bodies[0], with, out);
    }
    case StatementKind::Scope: return run_body(statement.bodies[0], inner(), out);
    case StatementKind::Break: return Flow::Break;
    case StatementKind::Continue: return Flow::Continue;
  }
  return Flow::Next;
}

void Interpreter::run_for(const Statement& statement, const std::shared_ptr<Scope>& scope, const Value& values,
                          int64_t depth, std::string& out) {
  auto loop = std::make_shared<Loop>();
  loop->depth = depth;
  List items = at_line(statement.line, [&] { return iterate_lazily(values); });
  charge(items.size() * bytes_per_step);
  const auto assigned = [&](const Value& item) {
    auto inner = std::make_shared<Scope>();
    inner->parent = scope;
    at_line(statement.line, [&] { assign(statement.target, item, inner); });
    return inner;
  };
  if (statement.expressions[1]) {
    List chosen;
    for (Value& item : items) {
      if (truth(evaluate(*statement.expressions[1], assigned(item)))) chosen.push_back(std::move(item));
    }
    items = std::move(chosen);
  }
  const auto finished = [&] {
    if (Iterable* iterable = values.iterable()) iterable->is_lent = false;
  };
  if (items.empty()) {
    finished();
    if (statement.bodies.size() > 1) {
      auto inner = std::make_shared<Scope>();
      inner->parent = scope;
      run_body(statement.bodies[1], inner, out);
    }
    return;
  }
  loop->items = std::make_shared<const List>(std::move(items));
  if (statement.recursive) {
    loop->recurse = [this, &statement, scope, depth](Interpreter&, const Value& inner_values) {
      const Depth nested(*this);
      std::string text;
      run_for(statement, scope, inner_values, depth + 1, text);
      return Value(std::move(text));
    };
  }
  struct Finish {  // a reference to the loop must not keep the scope alive
    Loop& loop;
    ~Finish() { loop.recurse = nullptr; }
  } const finish{*loop};
  for (; loop->index < loop->items->size(); ++loop->index) {
    const auto inner = assigned((*loop->items)[loop->index]);
    inner->variables["loop"] = Value(loop);
    const Flow flow = run_body(statement.bodies[0], inner, out);
    if (flow == Flow::Break) return;  // what is left of an iterator is not known
  }
  finished();
}

Value Interpreter::make_macro(const Statement& statement, const std::string& name,
                              const std::shared_ptr<Scope>& scope) {
  auto function = std::make_shared<Function>();
  function->name = name;
  function->call = [this, &statement, name, scope](Interpreter&, const Arguments& values) {
    return Value(run_macro(statement, name, scope, values));
  };
  return Value(std::shared_ptr<const Function>(std::move(function)));
}

std::string Interpreter::run_macro(const Statement& statement, const std::string& name,
                                   const std::shared_ptr<Scope>& scope, const Arguments& values) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  const auto& parameters = statement.parameters;
  if (values.positional.size() > parameters.size()) {
    throw TemplateError("macro '" + name + "' takes no more than " + std::to_string(parameters.size()) +
                        " arguments, not " + std::to_string(values.positional.size()));
  }
  for (size_t i = 0; i < values.positional.size(); ++i) {
    inner->variables[parameters[i].name] = values.positional[i];
  }
  for (const auto& named : values.named) {
    const std::string& argument = named.first;
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const Parameter& parameter) { return parameter.name == argument; });
    if (found == parameters.end() && argument != "caller") {
      throw TemplateError("macro '" + name + "' has no parameter '" + argument + "'");
    }
    if (!inner->variables.emplace(argument, named.second).second) {
      throw TemplateError("macro '" + name + "' got the argument '" + argument + "' twice");
    }
  }
  for (const Parameter& parameter : parameters) {
    if (inner->variables.contains(parameter.name)) continue;
    // A default may use the parameters that precede it.
    Value value = parameter.value ? evaluate(*parameter.value, inner)
                                  : Value::undefined("parameter '" + parameter.name + "' was not provided");
    inner->variables[parameter.name] = std::move(value);
  }
  std::string out;
  run_body(statement.bodies[0], inner, out);
  return out;
}

void Interpreter::assign(const Target& target, const Value& value, const std::shared_ptr<Scope>& scope) {
  if (!target.several.empty()) {
    const List items = iterate(value);
    if (items.size() != target.several.size()) {
      throw TemplateError("expected " + std::to_string(target.several.size()) + " values to unpack, found " +
                          std::to_string(items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.several[i], items[i], scope);
    return;
  }
  if (target.member.empty()) {
    scope->variables[target.name] = value;
    return;
  }
  const Value* found = scope->find(target.name);
  const auto* space = found == nullptr ? nullptr : std::get_if<Namespace>(&found->data);
  if (space == nullptr) {
    throw TemplateError("'" + target.name + "." + target.member + "' cannot be set: '" + target.name +
                        "' is not a namespace()");
  }
  check_member_name(target.member);
  space->members->set(Value(target.member), value);
}

Arguments Interpreter::arguments(const Expression& expression, const std::shared_ptr<Scope>& scope) {
  Arguments values;
  for (size_t i = 1; i < expression.children.size(); ++i) {
    values.positional.push_back(evaluate(*expression.children[i], scope));
  }
  for (const auto& [name, value] : expression.named) values.named.emplace_back(name, evaluate(*value, scope));
  return values;
}

Value Interpreter::call(const Value& function, const Arguments& values) {
  const Depth depth(*this);
  charge();
  if (const auto* found = std::get_if<std::shared_ptr<const Function>>(&function.data)) {
    return (*found)->call(*this, values);
  }
  if (const auto* loop = std::get_if<std::shared_ptr<Loop>>(&function.data)) {
    if (!(*loop)->recurse) throw TemplateError("the loop is not recursive");
    if (values.positional.size() != 1 || !values.named.empty()) throw TemplateError("loop() takes one argument");
    return (*loop)->recurse(*this, values.positional[0]);
  }
  require_defined(function);
  throw TemplateError("a " + type_name(function) + " is not callable");
}

Value Interpreter::evaluate(const Expression& expression, const std::shared_ptr<Scope>& scope) {
  return at_line(expression.line, [&] {
    const Depth depth(*this);
    charge();
    return evaluate_here(expression, scope);
  });
}

Value Interpreter::evaluate_here(const Expression& expression, const std::shared_ptr<Scope>& scope) {
  const auto child = [&](size_t i) { return evaluate(*expression.children[i], scope); };
  const auto child_or_none = [&](size_t i) { return expression.children[i] ? child(i) : Value(None{}); };
  const auto all_children = [&] {
    List values;
    for (size_t i = 0; i < expression.children.size(); ++i) values.push_back(child(i));
    return values;
  };
  switch (expression.kind) {
    case ExpressionKind::Constant: return expression.constant;
    case ExpressionKind::Name: {
      const Value* found = scope->find(expression.text);
      return found != nullptr ? *found : Value::undefined("'" + expression.text + "' is undefined");
    }
    case ExpressionKind::List: return Value(all_children());
    case ExpressionKind::Tuple: return Value::tuple(all_children());
    case ExpressionKind::Dict: {
      Dict dict;
      for (size_t i = 0; i < expression.children.size(); i += 2) dict.set(child(i), child(i + 1));
      return dict;
    }
    case ExpressionKind::Negate:
    case ExpressionKind::Plus: {
      const Value value = child(0);
      require_defined(value);
      if (!value.is_number()) throw TemplateError("the sign of a " + type_name(value) + " was asked for");
      const bool negate = expression.kind == ExpressionKind::Negate;
      // A sum with 0 would take the sign of -0.0 away.
      if (const auto* real = std::get_if<double>(&value.data)) return negate ? -*real : *real;
      return arithmetic(negate ? "-" : "+", Value(0), value);
    }
    case ExpressionKind::Not: return !truth(child(0));
    case ExpressionKind::Arithmetic: {
      const Value left = child(0);
      return arithmetic(expression.text, left, child(1));
    }
    case ExpressionKind::Concatenate: {
      std::string text;
      for (size_t i = 0; i < expression.children.size(); ++i) append(text, to_text(child(i)));
      return text;
    }
    case ExpressionKind::Compare: return compare(expression, scope);
    case ExpressionKind::And: {
      Value left = child(0);
      return truth(left) ? child(1) : left;
    }
    case ExpressionKind::Or: {
      Value left = child(0);
      return truth(left) ? left : child(1);
    }
    case ExpressionKind::Conditional:
      if (truth(child(1))) return child(0);
      return expression.children[2]
                 ? child(2)
                 : Value::undefined("the inline if-expression on line " + std::to_string(expression.line) +
                                    " evaluated to false and no else section was defined.");
    case ExpressionKind::Attribute: return attribute(child(0), expression.text);
    case ExpressionKind::Subscript: {
      const Value value = child(0);
      return subscript(value, child(1));
    }
    case ExpressionKind::Slice: {
      const Value value = child(0);
      const Value begin = child_or_none(1);
      const Value end = child_or_none(2);
      return slice(value, begin, end, child_or_none(3));
    }
    case ExpressionKind::Call: {
      const Value function = child(0);
      return call(function, arguments(expression, scope));
    }
    case ExpressionKind::Filter: return evaluate_filter(expression, nullptr, scope);
    case ExpressionKind::Test: {
      const Value value = child(0);
      return apply_test(expression.text, value, arguments(expression, scope));
    }
  }
  throw TemplateError("unknown expression");
}

Value Interpreter::evaluate_filter(const Expression& filter, const Value* innermost,
                                   const std::shared_ptr<Scope>& scope) {
  const Expression* inner = filter.children[0].get();
  Value value;
  if (inner == nullptr) {
    value = *innermost;
  } else if (inner->kind == ExpressionKind::Filter) {
    value = evaluate_filter(*inner, innermost, scope);
  } else {
    value = evaluate(*inner, scope);
  }
  charge();
  return at_line(filter.line, [&] { return apply_filter(filter.text, value, arguments(filter, scope)); });
}

bool Interpreter::compare(const Expression& expression, const std::shared_ptr<Scope>& scope) {
  Value left = evaluate(*expression.children[0], scope);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.children[i + 1], scope);
    const std::string& op = expression.operators[i];
    bool holds = false;
    if (op == "==") {
      holds = equal(left, right);
    } else if (op == "!=") {
      holds = !equal(left, right);
    } else if (op == "in") {
      holds = contains(right, left);
    } else if (op == "not in") {
      holds = !contains(right, left);
    } else if (op == "<") {
      holds = less(left, right, op);
    } else if (op == ">") {
      holds = less(right, left, op);
    } else if (op == "<=") {
      holds = less(left, right, op) || equal(left, right);
    } else {
      holds = less(right, left, op) || equal(left, right);
    }
    charge();
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::attribute(const Value& value, const std::string& name) {
  require_defined(value);
  if (const auto* space = std::get_if<Namespace>(&value.data)) {
    const Value* found = space->members->member(name);
    return found != nullptr ? *found : Value::undefined("'Namespace object' has no attribute '" + name + "'");
  }
  if (const auto* pointer = std::get_if<std::shared_ptr<Loop>>(&value.data)) {
    const std::shared_ptr<Loop>& loop = *pointer;
    const auto index = static_cast<int64_t>(loop->index);
    const auto size = static_cast<int64_t>(loop->items->size());
    if (name == "index") return index + 1;
    if (name == "index0") return index;
    if (name == "revindex") return size - index;
    if (name == "revindex0") return size - index - 1;
    if (name == "first") return index == 0;
    if (name == "last") return index == size - 1;
    if (name == "length") return size;
    if (name == "depth") return loop->depth;
    if (name == "depth0") return loop->depth - 1;
    if (name == "previtem")
      return index > 0 ? (*loop->items)[loop->index - 1] : Value::undefined("there is no previous item");
    if (name == "nextitem") {
      return index + 1 < size ? (*loop->items)[loop->index + 1] : Value::undefined("there is no next item");
    }
  }
  if (const Value bound = method(value, name); !bound.is_undefined()) return bound;
  if (const Dict* dict = value.dict()) {
    charge(dict->members.size());
    if (const Value* found = dict->member(name)) return *found;
  }
  return Value::undefined("'" + type_name(value) + " object' has no attribute '" + name + "'");
}

}  // namespace anyaccel::llm::jinja
