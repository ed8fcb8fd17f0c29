// What each intercepted call does, by the handler its line in calls.def names; a file a subject. Call
// is that call's tag (driver.h); a handler serves the plain and the per-thread flavour alike.
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
