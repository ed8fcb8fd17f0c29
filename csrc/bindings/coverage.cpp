// What the shim's table of calls covers of each version of cuda.h, as JSON made by the build.
#include "bindings.h"

namespace tandem::bindings {
namespace {

constexpr char kCoverage[] =
#include "coverage.inc"
    ;

}  // namespace

void add_coverage(pybind11::module_& module) { module.attr("CALL_COVERAGE") = kCoverage; }

}  // namespace tandem::bindings
