// A launch by Slurm, as the plugin sees it, in one process:
//
//     spank_host srun|node PLUGIN [ARGUMENT]... -- [--OPTION=VALUE]... -- COMMAND...
//
// ARGUMENTs are those of plugstack.conf. srun: the command checks the options, then the node takes
// them. node: only the node's side, as if the command had checked nothing. COMMAND then runs with
// the environment of this process as the plugin left it.
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

enum { kMostOptions = 16 };

struct spank_handle {
  bool initialising;  // the only time when options may be registered
  bool remote;
  struct spank_option options[kMostOptions];
  int option_count;
};

// The words between two "--".
struct words {
  int count;
  char** first;
};

static struct words words_at(char** argv) {
  struct words words = {0, argv};
  while (argv[words.count] && strcmp(argv[words.count], "--") != 0) ++words.count;
  if (argv[words.count]) return words;
  fputs("spank_host: a -- is missing\n", stderr);
  exit(2);
}

spank_err_t spank_option_register(spank_t spank, struct spank_option* option) {
  if (!spank->initialising || spank->option_count == kMostOptions) return ESPANK_BAD_ARG;
  spank->options[spank->option_count++] = *option;
  return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...) {
  if (!spank->remote) return ESPANK_NOT_REMOTE;
  if (item != S_JOB_ID) return ESPANK_BAD_ARG;
  va_list arguments;
  va_start(arguments, item);
  *va_arg(arguments, uint32_t*) = 17;
  va_end(arguments);
  return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t spank, const char* name, char* text, int size) {
  if (!spank->remote) return ESPANK_NOT_REMOTE;
  const char* value = getenv(name);
  if (!value) return ESPANK_ENV_NOEXIST;
  return snprintf(text, (size_t)size, "%s", value) < size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char* name, const char* value, int overwrite) {
  if (!spank->remote) return ESPANK_NOT_REMOTE;
  return setenv(name, value, overwrite) == 0 ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

spank_err_t spank_unsetenv(spank_t spank, const char* name) {
  if (!spank->remote) return ESPANK_NOT_REMOTE;
  return unsetenv(name) == 0 ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

const char* spank_strerror(spank_err_t error) {
  return error == ESPANK_NOSPACE ? "No space left on device" : "Invalid argument";
}

void slurm_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("error: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

typedef int callback(spank_t spank, int argc, char** argv);

static int call(void* plugin, const char* name, spank_t spank, struct words site) {
  callback* function;
  *(void**)&function = dlsym(plugin, name);
  return function(spank, site.count, site.first);
}

static int give(spank_t spank, char* word) {
  const size_t length = strcspn(word, "=");
  for (struct spank_option* o = spank->options; o != spank->options + spank->option_count; ++o) {
    if (!strncmp(word, "--", 2) && strlen(o->name) == length - 2 &&
        !strncmp(word + 2, o->name, length - 2))
      return o->cb(o->val, word[length] ? word + length + 1 : NULL, spank->remote);
  }
  fprintf(stderr, "spank_host: no option %s\n", word);
  return 2;
}

// Runs one side of the launch, with a fresh plugin that has no state from the other side.
static void side(bool remote, const char* path, struct words site, struct words options) {
  void* plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!plugin) {
    fprintf(stderr, "spank_host: %s\n", dlerror());
    exit(2);
  }
  struct spank_handle spank = {.initialising = true, .remote = remote};
  int error = call(plugin, "slurm_spank_init", &spank, site);
  spank.initialising = false;
  for (int i = 0; i < options.count && error == 0; ++i) error = give(&spank, options.first[i]);
  if (remote && error == 0) error = call(plugin, "slurm_spank_user_init", &spank, site);
  if (error != 0) exit(1);
  dlclose(plugin);
}

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const struct words site = words_at(argv + 3);
  const struct words options = words_at(site.first + site.count + 1);
  if (!strcmp(argv[1], "srun")) side(false, argv[2], site, options);
  side(true, argv[2], site, options);
  char** command = options.first + options.count + 1;
  execvp(*command, command);
  return 127;
}
