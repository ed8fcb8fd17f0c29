#include "link.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "decode.h"

namespace softgpu::ptx {
namespace {

using ast::Linkage;
using Names = std::map<std::string, std::string>;

void rename(const Names& names, std::string* name) {
  const auto found = names.find(*name);
  if (found != names.end()) *name = found->second;
}

void rename(const Names& names, ast::Operand* operand) {
  if (operand->variable == ast::kNone) rename(names, &operand->name);
  for (ast::Operand& part : operand->parts) rename(names, &part);
}

void rename(const Names& names, ast::Function* function) {
  rename(names, &function->name);
  for (ast::Instruction& instruction : function->code) {
    for (ast::Operand& operand : instruction.operands) rename(names, &operand);
  }
  for (ast::NameList& list : function->lists) {
    for (std::string& target : list.targets) rename(names, &target);
  }
}

// A name local to one module may mean something else in another, so local names get a suffix.
void make_locals_unique(ast::Module* module, size_t number) {
  const std::string suffix = "@" + std::to_string(number);  // no PTX name has an @
  Names names;
  for (const ast::Variable& variable : module->variables) {
    if (variable.linkage == Linkage::kLocal) names[variable.name] = variable.name + suffix;
  }
  for (const ast::Function& function : module->functions) {
    if (function.linkage == Linkage::kLocal && !function.is_entry) {
      names[function.name] = function.name + suffix;
    }
  }
  for (ast::Variable& variable : module->variables) {
    rename(names, &variable.name);
    for (ast::Element& element : variable.initial) rename(names, &element.symbol);
  }
  for (ast::Function& function : module->functions) rename(names, &function);
}

bool defines(const ast::Variable& variable) { return !variable.external; }
bool defines(const ast::Function& function) { return function.has_body; }

// A definition overrides a declaration, and a strong one a weak one; else the first one counts.
template <class Item>
void add(Item item, std::vector<Item>* items) {
  const auto same = std::find_if(items->begin(), items->end(),
                                 [&](const Item& other) { return other.name == item.name; });
  if (same == items->end()) {
    items->push_back(std::move(item));
  } else if (!defines(*same)) {
    *same = std::move(item);
  } else if (defines(item) && item.linkage != Linkage::kWeak) {
    if (same->linkage != Linkage::kWeak) {
      throw Invalid(item.line, "'" + item.name + "' is defined by two of the linked inputs");
    }
    *same = std::move(item);
  }
}

}  // namespace

ast::Module link(std::vector<ast::Module> modules) {
  ast::Module whole;
  for (size_t i = 0; i < modules.size(); ++i) {
    ast::Module& module = modules[i];
    make_locals_unique(&module, i);
    whole.version = std::max(whole.version, module.version);
    whole.target = std::max(whole.target, module.target);
    for (ast::Variable& variable : module.variables) add(std::move(variable), &whole.variables);
    for (ast::Function& function : module.functions) add(std::move(function), &whole.functions);
  }
  return whole;
}

bool needs_others(const ast::Module& module) {
  const auto wanted = [](const ast::Variable& variable) {
    return variable.external && variable.space != Space::kShared;
  };
  if (std::any_of(module.variables.begin(), module.variables.end(), wanted)) return true;
  std::set<std::string> defined;
  for (const ast::Function& function : module.functions) {
    if (function.has_body) defined.insert(function.name);
  }
  return std::any_of(module.functions.begin(), module.functions.end(),
                     [&](const ast::Function& f) { return defined.count(f.name) == 0; });
}

}  // namespace softgpu::ptx
