// Places the variables of a module, then decodes its functions.
#include "load.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

#include "control.h"
#include "decode.h"
#include "flow.h"
#include "half.h"
#include "link.h"
#include "parser.h"

namespace softgpu::ptx {

Program::~Program() {
  if (memory != nullptr) munmap(memory, memory_bytes);
}

namespace {

constexpr uint64_t kMostSharedBytes = 1 << 20;  // per module; the limit per kernel is lower

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Converts an element of an initialiser to the representation of its variable's type.
uint64_t representation(const ast::Element& element, Type type) {
  if (!is_float(type)) return element.bits;
  const double value = element.is_real ? bits_as<double>(element.bits)
                                       : static_cast<double>(static_cast<int64_t>(element.bits));
  switch (type) {
    case Type::kF32: return bits_as<uint32_t>(static_cast<float>(value));
    case Type::kF64: return bits_as<uint64_t>(value);
    case Type::kF16: return to_half(value);
    default: return to_bfloat(value);
  }
}

class Loader {
 public:
  explicit Loader(ast::Module module) : module_(std::move(module)), program_(new Program) {
    program_->version = module_.version;
    program_->target = module_.target;
  }

  std::unique_ptr<Program> load() {
    place_in_memory();
    place_shared();
    declare_functions();
    fill_memory();
    for (const ast::Function* from : bodies_) decode(*from);
    for (const ast::Function* from : bodies_) sum_up(*program_->functions[from->name]);
    return std::move(program_);
  }

 private:
  void declare(const ast::Variable& variable, const std::string& name, const Symbol& symbol) {
    if (!symbols_.emplace(name, symbol).second) {
      throw Invalid(variable.line, "'" + name + "' is there twice");
    }
  }

  void place_in_memory() {
    uint64_t bytes = 0;
    std::vector<std::pair<const ast::Variable*, uint64_t>> placed;
    for (const Space space : {Space::kConst, Space::kGlobal}) {
      for (const ast::Variable& variable : module_.variables) {
        if (variable.space != space) continue;
        if (variable.external) {
          throw Invalid(variable.line, "'" + variable.name + "' is nowhere defined");
        }
        bytes = round_up(bytes, std::max(variable.align, 16u));
        placed.emplace_back(&variable, bytes);
        bytes += variable.bytes;
      }
      if (space == Space::kConst) program_->const_bytes = bytes = round_up(bytes, 64);
    }
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    program_->memory = memory;
    program_->memory_bytes = bytes;
    for (const auto& [variable, offset] : placed) {
      const uint64_t address = reinterpret_cast<uint64_t>(memory) + offset;
      declare(*variable, variable->name, {variable->space, address, variable->bytes, nullptr});
      program_->globals[variable->name] = {address, variable->bytes};
    }
  }

  // Static shared memory comes first and is laid out alike for all kernels of the module; every
  // `extern` array begins behind it. Variables of a function are named "function/index" here.
  void place_shared() {
    uint64_t bytes = 0, align = 16;
    const auto place = [&](const ast::Variable& variable, const std::string& name) {
      bytes = round_up(bytes, variable.align);
      declare(variable, name, {Space::kShared, bytes, variable.bytes, nullptr});
      bytes += variable.bytes;
      if (bytes > kMostSharedBytes) throw Invalid(variable.line, "too much shared memory");
    };
    for (const ast::Variable& variable : module_.variables) {
      if (variable.space != Space::kShared) continue;
      if (variable.external || variable.bytes == 0) {
        align = std::max<uint64_t>(align, variable.align);
      } else {
        place(variable, variable.name);
      }
    }
    for (const ast::Function& function : module_.functions) {
      for (size_t i = 0; i < function.variables.size(); ++i) {
        if (function.variables[i].space != Space::kShared) continue;
        place(function.variables[i], function.name + "/" + std::to_string(i));
      }
    }
    bytes = round_up(bytes, std::min<uint64_t>(align, 1024));
    for (const ast::Variable& variable : module_.variables) {
      const bool dynamic = variable.external || variable.bytes == 0;
      if (variable.space != Space::kShared || !dynamic) continue;
      declare(variable, variable.name, {Space::kShared, bytes, 0, nullptr});
    }
    program_->shared_bytes = static_cast<uint32_t>(bytes);
  }

  void declare_functions() {
    for (const ast::Function& from : module_.functions) {
      if (!from.has_body) continue;
      std::unique_ptr<Function>& function = program_->functions[from.name];
      if (function) throw Invalid(from.line, "function '" + from.name + "' is there twice");
      function = std::make_unique<Function>();
      bodies_.push_back(&from);
    }
    for (const ast::Function& from : module_.functions) {
      const auto found = program_->functions.find(from.name);
      const Function* function = found == program_->functions.end() ? nullptr : found->second.get();
      if (symbols_.count(from.name) != 0) continue;
      symbols_[from.name] = {Space::kGlobal, reinterpret_cast<uint64_t>(function), 0, function};
    }
    // Signatures before bodies, since calls are checked against them.
    for (const ast::Function* from : bodies_) {
      builders_.push_back(std::make_unique<FunctionBuilder>(*from, symbols_,
                                                            program_->functions[from->name].get()));
    }
  }

  void fill_memory() {
    for (const ast::Variable& variable : module_.variables) {
      const uint32_t step = bytes_of(variable.type);
      if (variable.initial.empty()) continue;
      if (variable.space == Space::kShared) {
        throw Invalid(variable.line, "shared memory that starts with a value");
      }
      char* to = reinterpret_cast<char*>(symbols_.at(variable.name).value);
      for (const ast::Element& element : variable.initial) {
        uint64_t bits = representation(element, variable.type);
        if (!element.symbol.empty()) bits += address_of(element.symbol, variable, step);
        memcpy(to, &bits, std::min<size_t>(step, sizeof bits));
        to += step;
      }
    }
  }

  uint64_t address_of(const std::string& name, const ast::Variable& variable, uint32_t step) {
    const auto found = symbols_.find(name);
    if (found == symbols_.end() || found->second.value == 0 ||
        found->second.space == Space::kShared || step != 8) {
      throw Invalid(variable.line, "'" + variable.name + "' starts with what is no address");
    }
    return found->second.value;
  }

  void decode(const ast::Function& from) {
    Function& to = *program_->functions[from.name];
    const auto index =
        static_cast<size_t>(std::find(bodies_.begin(), bodies_.end(), &from) - bodies_.begin());
    FunctionBuilder& builder = *builders_[index];
    to.name = from.name;
    to.is_entry = from.is_entry;
    for (const ast::Instruction& instruction : from.code) {
      Decode decode(builder, instruction);
      const Decoder decoder = find_decoder(instruction.opcode);
      if (decoder == nullptr) decode.fail();
      decoder(decode);
      to.code.push_back(decode.finish());
      note_shared(to, instruction);
    }
    Instr end;
    end.flow = Flow::kReturn;
    end.line = from.line;
    to.code.push_back(end);
    find_reconvergence(to);
    for (int i = 0; i < 3; ++i) {
      to.required_threads[i] = from.required_threads[i];
      to.required_cluster[i] = from.required_cluster[i];
    }
    const uint32_t* limit =
        from.required_threads[0] != 0 ? from.required_threads : from.max_threads;
    to.max_threads = limit[0] != 0 ? limit[0] * limit[1] * limit[2] : 1024;
    to.max_threads = std::min(to.max_threads, 1024u);
  }

  // Notes which static shared memory the function names; callees are added to shared_of_ later.
  void note_shared(const Function& function, const ast::Instruction& instruction) {
    const std::function<void(const ast::Operand&)> look = [&](const ast::Operand& operand) {
      for (const ast::Operand& part : operand.parts) look(part);
      if (operand.name.empty()) return;
      const std::string name = operand.variable == ast::kNone
                                   ? operand.name
                                   : function.name + "/" + std::to_string(operand.variable);
      const auto found = symbols_.find(name);
      if (found == symbols_.end() || found->second.space != Space::kShared) return;
      shared_of_[&function].insert(found->second.value << 32 | found->second.bytes);
    };
    for (const ast::Operand& operand : instruction.operands) look(operand);
  }

  void sum_up(Function& function) {
    if (!function.is_entry) return;
    std::set<const Function*> seen;
    std::vector<const Function*> left{&function};
    std::set<uint64_t> shared;
    while (!left.empty()) {
      const Function* next = left.back();
      left.pop_back();
      if (!seen.insert(next).second) continue;
      shared.insert(shared_of_[next].begin(), shared_of_[next].end());
      left.insert(left.end(), next->callees.begin(), next->callees.end());
    }
    for (const uint64_t variable : shared) {
      function.shared_bytes += static_cast<uint32_t>(variable);
    }
  }

  const ast::Module module_;
  std::unique_ptr<Program> program_;
  Symbols symbols_;
  std::vector<const ast::Function*> bodies_;
  std::vector<std::unique_ptr<FunctionBuilder>> builders_;
  std::map<const Function*, std::set<uint64_t>> shared_of_;
};

}  // namespace

std::unique_ptr<Program> load(std::string_view text) { return Loader(parse(text)).load(); }

std::unique_ptr<Program> load(const std::vector<std::string_view>& texts) {
  if (texts.size() == 1) return load(texts[0]);
  std::vector<ast::Module> modules;
  for (const std::string_view text : texts) modules.push_back(parse(text));
  return Loader(link(std::move(modules))).load();
}

}  // namespace softgpu::ptx
