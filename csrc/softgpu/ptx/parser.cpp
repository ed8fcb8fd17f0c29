#include "parser.h"

#include <cctype>

#include "parser_base.h"

namespace softgpu::ptx {
namespace {

class ModuleParser {
 public:
  explicit ModuleParser(std::string_view text) : in_(text) {}

  ast::Module parse() {
    read_header();
    while (in_.token().kind != TokenKind::kEnd) read_item();
    return std::move(module_);
  }

 private:
  void read_header() {
    in_.expect(".version");
    const std::string version(in_.advance().text);
    if (version.size() < 3 || version.size() > 4 || version[1] != '.') {
      in_.fail("malformed version '" + version + "'");
    }
    module_.version = static_cast<uint32_t>(10 * (version[0] - '0') + (version[2] - '0'));
    in_.expect(".target");
    const std::string target(in_.word("a target").text);
    if (target.rfind("sm_", 0) != 0) in_.fail("unknown target '" + target + "'");
    for (size_t i = 3; i < target.size() && isdigit(static_cast<unsigned char>(target[i])); ++i) {
      module_.target = module_.target * 10 + static_cast<uint32_t>(target[i] - '0');
      if (module_.target > 9999) in_.fail("unknown target '" + target + "'");
    }
    while (in_.accept(",")) in_.word("a target");
    if (in_.accept(".address_size") && in_.whole_number() != 64) {
      in_.fail("only .address_size 64 is supported");
    }
  }

  void read_item() {
    if (in_.accept(".section")) {
      in_.word("a name");
      return in_.skip_braces();
    }
    if (in_.accept(".pragma") || in_.accept(".alias")) return in_.skip_to(";");
    bool external = false;
    ast::Linkage linkage = ast::Linkage::kLocal;
    for (;;) {
      if (in_.accept(".extern")) {
        external = true;
        linkage = ast::Linkage::kVisible;
      } else if (in_.accept(".visible")) {
        linkage = ast::Linkage::kVisible;
      } else if (in_.accept(".weak") || in_.accept(".common")) {
        linkage = ast::Linkage::kWeak;
      } else {
        break;
      }
    }
    if (in_.accept(".entry")) return read_function(true, linkage);
    if (in_.accept(".func")) return read_function(false, linkage);
    if (in_.token().kind == TokenKind::kWord && begins_declaration(in_.token().text)) {
      return read_variables(external, linkage);
    }
    in_.fail("unexpected '" + std::string(in_.token().text) + "'");
  }

  void read_variables(bool external, ast::Linkage linkage) {
    const Declaration declared = read_declaration(in_);
    if (declared.space == Space::kReg || declared.space == Space::kParam ||
        declared.space == Space::kLocal) {
      in_.fail("such a variable belongs into a function");
    }
    do {
      module_.variables.push_back(read_variable(in_, declared));
      module_.variables.back().external = external;
      module_.variables.back().linkage = linkage;
    } while (in_.accept(","));
    in_.expect(";");
  }

  std::vector<ast::Variable> read_params() {
    std::vector<ast::Variable> params;
    if (!in_.accept("(")) return params;
    while (!in_.token().is(")")) {
      if (!in_.token().is(".param")) in_.fail("expected a .param");
      const Declaration declared = read_declaration(in_);
      params.push_back(read_variable(in_, declared));
      if (!in_.accept(",")) break;
    }
    in_.expect(")");
    return params;
  }

  void read_dimensions(uint32_t (&to)[3]) {
    to[0] = to[1] = to[2] = 1;
    for (uint32_t& extent : to) {
      extent = static_cast<uint32_t>(in_.whole_number());
      if (!in_.accept(",")) break;
    }
  }

  void read_directives(ast::Function& function) {
    while (!in_.token().is("{") && !in_.token().is(";")) {
      const Token directive = in_.word("'{'");
      if (directive.is(".maxntid")) {
        read_dimensions(function.max_threads);
      } else if (directive.is(".reqntid")) {
        read_dimensions(function.required_threads);
      } else if (directive.is(".reqnctapercluster")) {
        read_dimensions(function.required_cluster);
      } else if (directive.is(".minnctapersm")) {
        function.min_blocks = static_cast<uint32_t>(in_.whole_number());
      } else if (directive.is(".maxnreg")) {
        function.max_registers = static_cast<uint32_t>(in_.whole_number());
      } else if (directive.is(".pragma")) {
        in_.skip_to(";");
      } else if (directive.is(".maxclusterrank") || directive.is(".abi_preserve") ||
                 directive.is(".abi_preserve_control")) {
        in_.whole_number();
      } else if (!directive.is(".noreturn") && !directive.is(".explicitcluster")) {
        throw Invalid(directive.line, "unknown directive '" + std::string(directive.text) + "'");
      }
    }
  }

  void read_function(bool is_entry, ast::Linkage linkage) {
    ast::Function function;
    function.is_entry = is_entry;
    function.linkage = linkage;
    function.line = in_.token().line;
    if (!is_entry) {
      if (in_.accept(".attribute")) in_.skip_to(")");
      function.results = read_params();
    }
    function.name = in_.word("a name").text;
    function.params = read_params();
    read_directives(function);
    if (!in_.accept(";")) {
      in_.expect("{");
      function.has_body = true;
      read_body(in_, function);
    }
    module_.functions.push_back(std::move(function));
  }

  TokenReader in_;
  ast::Module module_;
};

}  // namespace

ast::Module parse(std::string_view text) { return ModuleParser(text).parse(); }

}  // namespace softgpu::ptx
