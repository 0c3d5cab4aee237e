package history

import (
	"lapse/audit/evidence"
	"lapse/schemas"
)

// HashKeys are the keys for hashing long key values: of the configuration's route, and of former routes.
type HashKeys []schemas.Key

// Of returns the hash key of a route; nil if it is not among the configured ones.
func (keys HashKeys) Of(route *evidence.Route) schemas.Key {
	for _, key := range keys {
		if schemas.Fingerprint(key) == route.HashKey {
			return key
		}
	}
	return nil
}

// CheckHashKey refuses to continue from a position without the hash key of the route in force, if a transaction above the position is half in the
// topics.
func (p *Topics) CheckHashKey(keys HashKeys, from evidence.Reach) error {
	if keys.Of(p.route) != nil || !p.Touched(from) {
		return nil
	}
	return Refuse(ErrHashKeyMissing, "%s has route %d with the key %s, and a transaction above %s is not finished by it",
		"put that key into the folder of keys, as a file whose name begins with hash-, beside the one that follows it",
		p.route.Log.Name, p.route.Version, p.route.HashKey, from.LSN)
}
