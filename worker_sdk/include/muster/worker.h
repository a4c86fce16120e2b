// The whole worker SDK. A program can also include single headers.
#pragma once

#include "muster/agent.h"
#include "muster/checkpoint.h"
#include "muster/collectives.h"
#include "muster/distributed_data_parallel.h"
#include "muster/distributed_sampler.h"
#include "muster/environment.h"
#include "muster/print.h"
#include "muster/process_group.h"
#include "muster/record.h"
