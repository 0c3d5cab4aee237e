package evidence

// partition is the partition that Java's producer chooses for a key: murmur2 of its bytes, sign bit cleared, modulo the
// number of partitions. A nil key counts as empty (Java's producer would spread records without key).
func partition(key []byte, partitions int) int32 {
	return int32(murmur2(key)&0x7fffffff) % int32(partitions)
}

// murmur2 is MurmurHash2, 32 bits, with the seed of Kafka's clients.
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
