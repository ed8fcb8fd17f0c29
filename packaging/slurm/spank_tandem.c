// SPANK plugin: `srun --tandem-priority=batch` starts the tasks of a step under Tandem.
//
// Build it against the spank.h of the Slurm that loads it (`make spank`); docs/integrations.md says
// how to set it up. It sets what `tandem env` prints, the variables by which a program shares the
// GPU. It configures only this launch; the daemon decides what a user may have.
//
// Two rules. A wrong value ends the command that submits it. On the node nothing ends a task: the
// plugin logs one line about what it cannot do there, and the task starts without it.
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <slurm/spank.h>

SPANK_PLUGIN(tandem, 1)

// Sizes, with the final NUL.
enum { kValueBytes = 64, kNameBytes = 64, kPathBytes = 4096, kPreloadBytes = 16384 };
// The same limits as in client/tandem/units.py: the most SMs, and the bytes below which a bare
// number must have lost its unit.
enum { kMostSms = 9999, kGranuleBytes = 2 << 20 };

struct unit {
  const char* name;
  double scale;
};

// The units that the library reads (shim/job/settings.cpp).
static const struct unit kBytes[] = {
    {"", 1},       {"b", 1},        {"k", 0x1p10},   {"kib", 0x1p10}, {"kb", 1e3},
    {"m", 0x1p20}, {"mib", 0x1p20}, {"mb", 1e6},     {"g", 0x1p30},   {"gib", 0x1p30},
    {"gb", 1e9},   {"t", 0x1p40},   {"tib", 0x1p40}, {"tb", 1e12},    {NULL, 0},
};
static const struct unit kNanoseconds[] = {
    {"ns", 1},     {"us", 1e3},   {"ms", 1e6},    {"s", 1e9}, {"m", 6e10},
    {"min", 6e10}, {"h", 3.6e12}, {"d", 8.64e13}, {NULL, 0},
};

// Settings from plugstack.conf. The strings are Slurm's, and live as long as the plugin.
static struct {
  bool all_jobs;         // not only those with an option
  const char* priority;  // null: the daemon's own default
  const char* library;   // a pattern, because the package's path contains a Python version
  const char* runtime;   // null: the library looks in the usual places
} g_site;

static bool is_class(const char* value) {
  return !strcmp(value, "latency") || !strcmp(value, "normal") || !strcmp(value, "batch");
}

static bool is_switch(const char* value) { return !strcmp(value, "on") || !strcmp(value, "off"); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads a number such as "12" or "1.5"; returns the text behind it, or null. Not strtod, which
// would accept "inf", "0x1p3" and the decimal comma of some locales.
static const char* read_number(const char* text, double* number) {
  if (!is_digit(*text)) return NULL;
  for (*number = 0; is_digit(*text); ++text) *number = *number * 10 + (*text - '0');
  if (*text != '.' || !is_digit(text[1])) return text;
  double scale = 0.1;
  for (++text; is_digit(*text); ++text, scale /= 10) *number += scale * (*text - '0');
  return text;
}

// Reads a number with one of these units, converted to the unit of scale 1. Returns 0, which is
// never a valid value here, if the text is anything else.
static double read_scaled(const char* text, const struct unit* units) {
  double number = 0;
  const char* rest = read_number(text, &number);
  for (; rest && units->name; ++units) {
    if (!strcasecmp(rest, units->name)) return number * units->scale;
  }
  return 0;
}

static bool is_whole(const char* text, const char* unit, double most) {
  double number = 0;
  const char* rest = read_number(text, &number);
  return rest && !strcmp(rest, unit) && !strchr(text, '.') && number >= 1 && number <= most;
}

static bool is_memory(const char* value) {
  if (is_whole(value, "%", 100)) return true;
  const double bytes = read_scaled(value, kBytes);
  if (bytes < 1 || bytes >= 0x1p63) return false;
  return bytes >= kGranuleBytes || !is_digit(value[strlen(value) - 1]);
}

static bool is_slo(const char* value) {
  if (strncmp(value, "p99=", 4) != 0) return false;
  const double time_ns = read_scaled(value + 4, kNanoseconds);
  return time_ns >= 1 && time_ns < 0x1p63;
}

static bool is_sm(const char* value) {
  return is_whole(value, "%", 100) || is_whole(value, "", kMostSms);
}

static int take(int index, const char* value, int remote);

struct request {
  struct spank_option option;
  bool (*is_allowed)(const char* value);
  const char* allowed;
  const char* variable;    // passes it to the library; null: it is for the plugin itself
  char said[kValueBytes];  // the value given; empty: none
};

static struct request g_requests[] = {
    {{"tandem", "on|off", "share the GPU under Tandem, or not", 1, 0, take},
     is_switch,
     "on or off",
     NULL,
     ""},
    {{"tandem-priority", "CLASS", "Tandem: latency, normal or batch", 1, 1, take},
     is_class,
     "latency, normal or batch",
     "TANDEM_PRIORITY",
     ""},
    {{"tandem-memory", "SIZE", "Tandem: GPU memory of each process (20GiB, 40%)", 1, 2, take},
     is_memory,
     "a size such as 20GiB, or a share from 1% to 100%",
     "TANDEM_MEMORY",
     ""},
    {{"tandem-slo", "p99=TIME", "Tandem: latency to keep (p99=50ms)", 1, 3, take},
     is_slo,
     "a time such as p99=50ms",
     "TANDEM_SLO",
     ""},
    {{"tandem-sm", "SHARE", "Tandem: SMs to use (30%, or their number)", 1, 4, take},
     is_sm,
     "a share from 1% to 100%, or a number of SMs from 1 to 9999",
     "TANDEM_SM",
     ""},
};
enum { kSwitch = 0, kRequests = sizeof(g_requests) / sizeof(g_requests[0]) };

// Called for each option given, by the command and again on the node (remote). Each srun in a batch
// script gets the script's options first and then its own: the last value counts.
static int take(int index, const char* value, int remote) {
  if (index < 0 || index >= kRequests) return 0;
  struct request* request = &g_requests[index];
  if (value && strlen(value) < kValueBytes && request->is_allowed(value)) {
    strcpy(request->said, value);
    return 0;
  }
  slurm_error("--%s '%.80s' is not allowed; use %s%s", request->option.name, value ? value : "",
              request->allowed, remote ? "; going on without it" : "");
  return remote ? 0 : -1;  // the submitting host may have another version of this plugin
}

// Returns the text behind the '=' of "key=value", or null.
static const char* value_of(const char* argument, const char* key) {
  const size_t length = strlen(key);
  const bool is_it = !strncmp(argument, key, length) && argument[length] == '=';
  return is_it ? argument + length + 1 : NULL;
}

static bool read_argument(const char* argument) {
  const char* value;
  if ((value = value_of(argument, "default")) && is_switch(value)) {
    g_site.all_jobs = !strcmp(value, "on");
  } else if ((value = value_of(argument, "priority")) && is_class(value)) {
    g_site.priority = value;
  } else if ((value = value_of(argument, "library")) && *value == '/') {
    g_site.library = value;
  } else if ((value = value_of(argument, "runtime")) && *value == '/') {
    g_site.runtime = value;
  } else {
    return false;
  }
  return true;
}

// Called in every context; it must register the options in each, or Slurm does not know them there.
int slurm_spank_init(spank_t spank, int argc, char** argv) {
  // Where the Debian package installs it.
  g_site.library = "/usr/lib/tandem/lib/python3*/site-packages/tandem/libtandem.so";
  for (int i = 0; i < argc; ++i) {
    if (read_argument(argv[i])) continue;
    slurm_error(
        "tandem: '%s' in plugstack.conf is not one of default=on|off, "
        "priority=latency|normal|batch, library=/FILE, runtime=/FOLDER; ignoring it",
        argv[i]);
  }
  for (int i = 0; i < kRequests; ++i) {
    if (spank_option_register(spank, &g_requests[i].option) != ESPANK_SUCCESS)
      slurm_error("tandem: Slurm rejects option --%s; going on without it",
                  g_requests[i].option.name);
  }
  return 0;
}

static bool is_managed(void) {
  const char* word = g_requests[kSwitch].said;
  if (*word) return !strcmp(word, "on");
  for (int i = 0; i < kRequests; ++i) {
    if (*g_requests[i].said) return true;
  }
  return g_site.all_jobs;
}

// An empty value counts as none, as everywhere in Tandem.
static bool has_variable(spank_t spank, const char* name) {
  char start[2] = "";
  const spank_err_t error = spank_getenv(spank, name, start, sizeof(start));
  return error == ESPANK_NOSPACE || (error == ESPANK_SUCCESS && *start);
}

static bool set_variable(spank_t spank, const char* name, const char* value) {
  const spank_err_t error = spank_setenv(spank, name, value, 1);
  if (error == ESPANK_SUCCESS) return true;
  slurm_error("tandem: %s cannot be set (%s); going on without it", name, spank_strerror(error));
  return false;
}

static void set_if_missing(spank_t spank, const char* name, const char* value) {
  if (!has_variable(spank, name)) set_variable(spank, name, value);
}

// Finds the library on this node. Preloading a missing one would make the loader print a line for
// every program.
static bool find_library(char* path, size_t size) {
  glob_t found;
  if (glob(g_site.library, 0, NULL, &found) != 0) return false;
  // If there are several, take the last, which belongs to the newest Python.
  const int length = snprintf(path, size, "%s", found.gl_pathv[found.gl_pathc - 1]);
  globfree(&found);
  // The loader splits at spaces and colons, and has no way to escape them.
  return length > 0 && (size_t)length < size && !strpbrk(path, " :");
}

// Appends the entries of `present` except `library` to `out`, each preceded by a colon.
static void append_others(char* out, char* present, const char* library) {
  char* rest = NULL;
  for (char* one = strtok_r(present, " :", &rest); one; one = strtok_r(NULL, " :", &rest)) {
    if (strcmp(one, library) != 0) out += sprintf(out, ":%s", one);
  }
}

// Puts the library, once, before what the job preloads; or removes it, since a job that is
// submitted from another job inherits that job's variables.
static bool preload(spank_t spank, const char* library, bool managed) {
  static char present[kPreloadBytes], text[kPathBytes + kPreloadBytes + 1];
  const spank_err_t error = spank_getenv(spank, "LD_PRELOAD", present, sizeof(present));
  if (error == ESPANK_ENV_NOEXIST) {
    *present = '\0';
  } else if (error != ESPANK_SUCCESS) {
    slurm_error("tandem: LD_PRELOAD cannot be read (%s); starting without Tandem",
                spank_strerror(error));
    return false;
  }
  const int length = managed ? sprintf(text, "%s", library) : 0;
  text[length] = '\0';
  append_others(text + length, present, library);
  if (managed) return set_variable(spank, "LD_PRELOAD", text);
  if (*text) return set_variable(spank, "LD_PRELOAD", text + 1);
  return spank_unsetenv(spank, "LD_PRELOAD") == ESPANK_SUCCESS;
}

// Tells whether `tandem` would take the name for a job's number.
static bool is_id(const char* name) {
  return !strncmp(name, "j-", 2) && name[2] && name[2 + strspn(name + 2, "0123456789abcdef")] == 0;
}

// Gives Tandem's job the name of Slurm's job, as far as Tandem allows it.
static void name_job(spank_t spank) {
  if (has_variable(spank, "TANDEM_NAME")) return;
  char name[kNameBytes] = "";
  // Slurm cuts a longer name to the space there is.
  spank_getenv(spank, "SLURM_JOB_NAME", name, sizeof(name));
  name[sizeof(name) - 1] = '\0';
  // The daemon refuses names that are not valid UTF-8, and the cut may split a character.
  for (char* c = name; *c; ++c) {
    if (*c < 0x20 || *c >= 0x7f) *c = '?';
  }
  uint32_t id = 0;
  if ((name[strspn(name, " ")] == '\0' || is_id(name)) &&
      spank_get_item(spank, S_JOB_ID, &id) == ESPANK_SUCCESS)
    snprintf(name, sizeof(name), "slurm-%u", (unsigned)id);
  set_variable(spank, "TANDEM_NAME", name);
}

static void manage(spank_t spank) {
  char library[kPathBytes];
  if (!find_library(library, sizeof(library))) {
    slurm_error("tandem: there is no %s to preload; starting without Tandem", g_site.library);
    return;
  }
  if (!preload(spank, library, true)) return;
  // An option takes precedence over the variable, as with `tandem run`.
  for (int i = 0; i < kRequests; ++i) {
    const struct request* request = &g_requests[i];
    if (request->variable && *request->said) set_variable(spank, request->variable, request->said);
  }
  if (g_site.priority) set_if_missing(spank, "TANDEM_PRIORITY", g_site.priority);
  if (g_site.runtime) set_if_missing(spank, "TANDEM_RUNTIME_DIR", g_site.runtime);
  name_job(spank);
}

static void leave_out(spank_t spank) {
  char library[kPathBytes];
  if (has_variable(spank, "LD_PRELOAD") && find_library(library, sizeof(library)))
    preload(spank, library, false);
}

// Called once per step on its node, with the user's rights: the variables apply to all its tasks,
// and a problem is logged once. A TaskProlog runs later, and has the last word.
int slurm_spank_user_init(spank_t spank, int argc, char** argv) {
  (void)argc, (void)argv;
  if (is_managed()) {
    manage(spank);
  } else if (*g_requests[kSwitch].said) {
    leave_out(spank);
  }
  return 0;
}
