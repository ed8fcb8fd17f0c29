// What each intercepted call does: its line in calls.def names the handler, and each file holds the
// handlers of one subject. Call is the call's tag (driver.h); a handler serves both the plain and
// the per-thread flavour.
#pragma once

#include "handlers/allocations.h"
#include "handlers/arrays.h"
#include "handlers/batches.h"
#include "handlers/common.h"
#include "handlers/contexts.h"
#include "handlers/copies.h"
#include "handlers/ends.h"
#include "handlers/graph_nodes.h"
#include "handlers/graphs.h"
#include "handlers/ipc.h"
#include "handlers/launches.h"
#include "handlers/lookups.h"
#include "handlers/memops.h"
#include "handlers/memsets.h"
#include "handlers/order.h"
#include "handlers/pointers.h"
#include "handlers/pools.h"
#include "handlers/sharing.h"
#include "handlers/vmm.h"
