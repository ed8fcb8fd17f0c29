// The part of Slurm's header that packaging/slurm/spank_tandem.c uses, written from Slurm's
// documentation (spank(7)), so that the plugin can be compiled and run without Slurm. spank_host.c
// plays Slurm's part.
#pragma once

typedef struct spank_handle* spank_t;

typedef enum {
  ESPANK_SUCCESS,
  ESPANK_BAD_ARG,
  ESPANK_ENV_NOEXIST,
  ESPANK_NOSPACE,
  ESPANK_NOT_REMOTE,
} spank_err_t;

typedef enum { S_JOB_ID } spank_item_t;

typedef int (*spank_opt_cb_f)(int val, const char* optarg, int remote);

struct spank_option {
  char* name;
  char* arginfo;
  char* usage;
  int has_arg;
  int val;
  spank_opt_cb_f cb;
};

spank_err_t spank_option_register(spank_t spank, struct spank_option* option);
spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...);
spank_err_t spank_getenv(spank_t spank, const char* name, char* text, int size);
spank_err_t spank_setenv(spank_t spank, const char* name, const char* value, int overwrite);
spank_err_t spank_unsetenv(spank_t spank, const char* name);
const char* spank_strerror(spank_err_t error);
void slurm_error(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The plugin's loader reads these.
#define SPANK_PLUGIN(name, version)   \
  const char plugin_name[] = #name;   \
  const char plugin_type[] = "spank"; \
  const unsigned plugin_version = 0;  \
  const unsigned spank_plugin_version = version;

int slurm_spank_init(spank_t spank, int argc, char** argv);
int slurm_spank_user_init(spank_t spank, int argc, char** argv);
