#include <string_view>

#include "bindings.h"
#include "daemon/codec.h"
#include "shm_layout.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;

struct Mapped {};

void throw_if(const daemon::Problem& problem) {
  if (problem) throw py::value_error(problem.text);
}

template <typename T>
py::bytes to_bytes(const T& message) {
  return py::bytes(reinterpret_cast<const char*>(&message), sizeof(message));
}

py::object decode(const py::bytes& packet) {
  const std::string_view bytes = packet;
  daemon::Message message;
  throw_if(daemon::decode(bytes.data(), bytes.size(), &message));
  switch (message.type) {
    case wire::Type::kHello: return py::cast(message.hello);
    case wire::Type::kRegister: return py::cast(message.request);
    case wire::Type::kShared: return py::cast(message.shared);
    case wire::Type::kUses: return py::cast(message.uses);
    default: return py::cast(Mapped{});
  }
}

py::list device_uuids(const wire::Hello& hello) {
  py::list out;
  for (uint32_t i = 0; i < hello.device_count; ++i) {
    out.append(to_bytes(hello.device_uuid[i]));
  }
  return out;
}

py::tuple promised(const wire::Promise& promise) {
  return py::make_tuple(promise.persistent_bytes, promise.ephemeral_bytes);
}

py::tuple asked_of_sms(const wire::Space& space) {
  return py::make_tuple(space.sm_count, space.isolation);
}

py::bytes encode_welcome(uint64_t process_id, uint64_t job_id, uint32_t clock,
                         uint32_t layout_version, bool swappable) {
  wire::Welcome message;
  throw_if(daemon::encode_welcome(process_id, job_id, clock, layout_version, swappable, &message));
  return to_bytes(message);
}

py::bytes encode_refused(uint32_t code, const std::string& reason) {
  wire::Refused message;
  throw_if(daemon::encode_refused(code, reason, &message));
  return to_bytes(message);
}

py::bytes encode_registered(uint64_t job_id, uint32_t job_class, const std::string& environment,
                            const std::string& told) {
  wire::Registered message;
  throw_if(daemon::encode_registered(job_id, job_class, environment, told, &message));
  return to_bytes(message);
}

py::bytes encode_host_pool(uint64_t bytes) {
  wire::HostPool message;
  throw_if(daemon::encode_host_pool(bytes, &message));
  return to_bytes(message);
}

py::bytes encode_host_file(uint32_t order, uint32_t since, uint64_t pool) {
  wire::HostFile message;
  throw_if(daemon::encode_host_file(order, since, pool, &message));
  return to_bytes(message);
}

py::bytes encode_host_back(uint32_t order, uint32_t since, uint64_t pool) {
  wire::HostBack message;
  throw_if(daemon::encode_host_back(order, since, pool, &message));
  return to_bytes(message);
}

py::bytes encode_presence(uint32_t index, uint32_t job_class, bool gone) {
  wire::Presence message;
  throw_if(daemon::encode_presence(index, job_class, gone, &message));
  return to_bytes(message);
}

void add_types(py::module_& module) {
  using wire::Hello;
  using wire::Register;
  using wire::Request;
  py::class_<Request>(module, "Request", py::is_final())
      .def_readonly("job_class", &Request::job_class)
      .def_readonly("sm_percent", &Request::sm_percent)
      .def_readonly("memory_bytes", &Request::memory_bytes)
      .def_readonly("memory_min_bytes", &Request::memory_min_bytes)
      .def_readonly("slo_p99_ns", &Request::slo_p99_ns)
      .def_readonly("preemptible", &Request::preemptible)
      .def_readonly("memory_percent", &Request::memory_percent)
      .def_readonly("wait_memory_s", &Request::wait_memory_s)
      .def_readonly("swappable", &Request::swappable)
      .def_property_readonly("name", [](const Request& r) { return py::str(r.name); })
      .def_property_readonly("group", [](const Request& r) { return py::str(r.group); });
  py::class_<Hello>(module, "Hello", py::is_final())
      .def_readonly("layout_min", &Hello::layout_min)
      .def_readonly("layout_max", &Hello::layout_max)
      .def_readonly("shim_version", &Hello::shim_version)
      .def_readonly("clock", &Hello::clock)
      .def_readonly("job_id", &Hello::job_id)
      .def_readonly("abilities", &Hello::abilities)
      .def_readonly("request", &Hello::request)
      .def_property_readonly("promise", [](const Hello& h) { return promised(h.promise); })
      .def_property_readonly("space", [](const Hello& h) { return asked_of_sms(h.space); })
      .def_readonly("idle_release_s", &Hello::idle_release_s)
      .def_property_readonly("mps_percent", [](const Hello& h) { return h.mps_sms / 1e3; })
      .def_property_readonly("device_uuids", &device_uuids);
  py::class_<Register>(module, "Register", py::is_final())
      .def_readonly("request", &Register::request)
      .def_property_readonly("promise", [](const Register& r) { return promised(r.promise); })
      .def_property_readonly("space", [](const Register& r) { return asked_of_sms(r.space); })
      .def_readonly("idle_release_s", &Register::idle_release_s)
      .def_property_readonly("gpu", [](const Register& r) { return py::str(r.gpu); })
      .def_property_readonly("command", [](const Register& r) { return py::str(r.command); })
      .def_property_readonly(
          "no_wait", [](const Register& r) { return (r.flags & wire::kRegisterNoWait) != 0; })
      .def_property_readonly(
          "asks_again", [](const Register& r) { return (r.flags & wire::kRegisterAsksAgain) != 0; })
      .def_property_readonly(
          "only_asks", [](const Register& r) { return (r.flags & wire::kRegisterOnlyAsks) != 0; });
  py::class_<wire::Shared>(module, "Shared", py::is_final())
      .def_readonly("key", &wire::Shared::key);
  py::class_<wire::Uses>(module, "Uses", py::is_final())
      .def_property_readonly("device_uuid",
                             [](const wire::Uses& u) { return to_bytes(u.device_uuid); });
  py::class_<Mapped>(module, "Mapped", py::is_final());
}

}  // namespace

void add_messages(py::module_& module) {
  add_types(module);
  module.def("decode", &decode, py::arg("packet"));
  module.def("encode_welcome", &encode_welcome, py::kw_only(), py::arg("process_id"),
             py::arg("job_id"), py::arg("clock"), py::arg("layout_version") = shm::kLayoutVersion,
             py::arg("swappable") = false);
  module.def("encode_refused", &encode_refused, py::kw_only(), py::arg("code"), py::arg("reason"));
  module.def("encode_registered", &encode_registered, py::kw_only(), py::arg("job_id"),
             py::arg("job_class") = 0, py::arg("environment") = "", py::arg("told") = "");
  module.def("encode_host_pool", &encode_host_pool, py::kw_only(), py::arg("bytes"));
  module.def("encode_host_file", &encode_host_file, py::kw_only(), py::arg("order"),
             py::arg("since"), py::arg("pool"));
  module.def("encode_host_back", &encode_host_back, py::kw_only(), py::arg("order"),
             py::arg("since"), py::arg("pool"));
  module.attr("ABILITY_HOST_FILE") = wire::kAbilityHostFile;
  module.attr("ABILITY_HOST_BACK") = wire::kAbilityHostBack;
  module.attr("ABILITY_HAS_SET") = wire::kAbilityHasSet;
  module.def("encode_swap", [] { return to_bytes(daemon::encode_swap()); });
  module.def("encode_presence", &encode_presence, py::kw_only(), py::arg("index"),
             py::arg("job_class"), py::arg("gone") = false);
}

}  // namespace tandem::bindings
