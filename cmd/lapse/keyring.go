package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lapse/internal/config"
	"lapse/internal/catalog"
)

// checkKeys refuses keys that are not those the database was installed with. Under another tag key Lapse's own deletions
// come out as unverified, under another hash key the log cannot go on.
func checkKeys(s *config.Settings, i *installation, names ...config.KeyName) error {
	given, err := s.Keys.Fingerprints(names...)
	if err != nil {
		return invalid(err)
	}
	for _, name := range names {
		if i.keys[string(name)] == "" {
			return fmt.Errorf("this database has no fingerprint of key %s on record: run lapse init, where the keys are that it was installed with", name)
		}
	}
	err = catalog.CompareKeys(i.keys, given)
	var other *catalog.KeysError
	if errors.As(err, &other) {
		err = fmt.Errorf("%s: %w", s.Keys.Place(config.KeyName(other.Name)), err)
	}
	return invalid(err)
}

// lackingKeys refuses to make keys for a database that is installed: with a second set, what was deleted under the first
// could no longer be told from a forgery.
func lackingKeys(s *config.Settings, i *installation, missing []config.KeyName) error {
	var recorded []string
	for _, name := range slices.Sorted(maps.Keys(i.keys)) {
		recorded = append(recorded, name+" "+i.keys[name])
	}
	return invalid(fmt.Errorf("key %s: %w in %s, and others are not made for a database that is installed: copy the folder of keys that "+
		"it was installed with (fingerprints: %s) to %s, or name it with keys: in lapse.yaml, LAPSE_KEYS or --keys",
		joined(missing), config.ErrNoKey, s.Keys.Dir, strings.Join(recorded, ", "), s.Keys.Dir))
}
