/* Any driver on a Linux kernel before 5.12, in a process all of whose memory lies in huge pages. libibverbs withholds
 * registered pages from children by madvise, which the kernel refuses for a part of a huge page
 * (libibverbs/memory.c, ibv_madvise_range; Linux mm/mmap.c, __split_vma). */
#include "nd.h"

const struct nd_profile nd_hugepages = {
	.name = "hugepages",
	.huge_pages = true,
};
