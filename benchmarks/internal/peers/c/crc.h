/* The CRC-32 of zlib (the reflected polynomial 0xedb88320): with carry-less multiplications where the
 * processor has them, as Go's hash/crc32 does, and with a table of bytes elsewhere.
 *
 * The multiplications follow Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction" (Intel, 2009), for a reflected polynomial. The constants are powers of x
 * modulo the polynomial. */
#include <stddef.h>
#include <stdint.h>

static uint32_t crc_table[256];

static uint32_t crc_bytes(uint32_t crc, const uint8_t *p, size_t n)
{
	while (n--)
		crc = crc >> 8 ^ crc_table[(crc ^ *p++) & 255];
	return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

enum { CRC_BLOCK = 64, CRC_LANE = 16 }; /* bytes: four lanes, and one */

#define CRC_TARGET __attribute__((target("pclmul,sse4.1")))

/* Multiplies a lane by the power of x that moves it behind the data that next is, and adds next. */
CRC_TARGET static inline __m128i crc_fold(__m128i lane, __m128i by, __m128i next)
{
	return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00), _mm_clmulepi64_si128(lane, by, 0x11)), next);
}

/* n is a multiple of CRC_LANE, and at least CRC_BLOCK. */
CRC_TARGET static uint32_t crc_lanes(uint32_t crc, const uint8_t *p, size_t n)
{
	const __m128i by_block = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
	const __m128i by_lane = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
	const __m128i by_half = _mm_set_epi64x(0, 0x0163cd6124);
	const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
	const __m128i low = _mm_setr_epi32(-1, 0, -1, 0);
	const __m128i *v = (const __m128i *)p;
	__m128i x[4], t;

	for (int i = 0; i < 4; i++)
		x[i] = _mm_loadu_si128(v++);
	x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
	for (n -= CRC_BLOCK; n >= CRC_BLOCK; n -= CRC_BLOCK)
		for (int i = 0; i < 4; i++)
			x[i] = crc_fold(x[i], by_block, _mm_loadu_si128(v++));
	for (int i = 1; i < 4; i++)
		x[0] = crc_fold(x[0], by_lane, x[i]);
	for (; n >= CRC_LANE; n -= CRC_LANE)
		x[0] = crc_fold(x[0], by_lane, _mm_loadu_si128(v++));
	/* 128 bits to 64, to 32 by Barrett's reduction */
	t = _mm_xor_si128(_mm_srli_si128(x[0], 8), _mm_clmulepi64_si128(x[0], by_lane, 0x10));
	t = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(t, low), by_half, 0x00), _mm_srli_si128(t, 4));
	x[0] = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(t, low), barrett, 0x10), low);
	t = _mm_xor_si128(t, _mm_clmulepi64_si128(x[0], barrett, 0x00));
	return (uint32_t)_mm_extract_epi32(t, 1);
}
#endif

/* Whether crc32 may multiply. */
static int crc_multiplies;

static uint32_t crc32(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint32_t crc = ~0u;

#if defined(__x86_64__)
	if (crc_multiplies && n >= CRC_BLOCK) {
		size_t most = n - n % CRC_LANE;

		crc = crc_lanes(crc, p, most);
		p += most;
		n -= most;
	}
#endif
	return ~crc_bytes(crc, p, n);
}

/* Prepares crc32. It returns 0 if the two ways differ. */
static int crc_begin(void)
{
	uint8_t sample[1003];
	uint32_t by_table;

	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
		crc_table[i] = c;
	}
	for (size_t i = 0; i < sizeof(sample); i++)
		sample[i] = (uint8_t)(i * i + i / 7);
	by_table = crc32(sample, sizeof(sample));
#if defined(__x86_64__)
	crc_multiplies = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
	return crc32("123456789", 9) == 0xcbf43926 && crc32(sample, sizeof(sample)) == by_table;
}
