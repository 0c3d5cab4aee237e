package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lapse/internal/config"
	"lapse/internal/setup/site"
	"lapse/schemas"
)

// checkKeys refuses keys other than those the database was installed with. With another tag key, Lapse's own deletions would count as
// unverified.
func checkKeys(s *config.Settings, i *site.Installation, names ...config.KeyName) error {
	given, err := fingerprints(s, i, names...)
	if err != nil {
		return invalid(err)
	}
	for _, name := range names {
		if i.Keys[string(name)] == "" {
			return fmt.Errorf("this database has no fingerprint of key %s on record: run lapse init on the machine with the keys that it was installed with", name)
		}
	}
	err = site.CompareKeys(i.Keys, given)
	var other *site.KeysError
	if errors.As(err, &other) {
		err = otherKey(s, other)
	}
	return invalid(err)
}

// otherKey describes a key that is not the recorded one and says where it comes from.
func otherKey(s *config.Settings, e *site.KeysError) error {
	err := fmt.Errorf("%s: %w", s.Keys.Place(config.KeyName(e.Name)), e)
	if e.Name == string(config.HashKey) || e.Name == string(config.LogKey) {
		err = fmt.Errorf("%w; if this key replaces it, keep the former one next to it, in a file whose name begins with %s-", err, e.Name)
	}
	return err
}

// fingerprints returns the keys' fingerprints for comparison with those on record. The key named hash or log may be a successor of the recorded
// one, which is then among its former keys. The log says from which position on the successor applies.
func fingerprints(s *config.Settings, i *site.Installation, names ...config.KeyName) (map[string]string, error) {
	given, err := s.Keys.Fingerprints(names...)
	if err != nil || i == nil {
		return given, err
	}
	for _, name := range []config.KeyName{config.HashKey, config.LogKey} {
		if given[string(name)] == "" {
			continue
		}
		former, err := s.Keys.Former(name)
		if err != nil {
			return given, err
		}
		for _, key := range former {
			if recorded := i.Keys[string(name)]; key.Fingerprint() == recorded {
				given[string(name)] = recorded
			}
		}
	}
	return given, nil
}

// lackingKeys refuses to make keys for a database that is already installed. With new keys, deletions under the old ones would look like
// forgeries.
func lackingKeys(s *config.Settings, i *site.Installation, missing []config.KeyName) error {
	var recorded []string
	for _, name := range slices.Sorted(maps.Keys(i.Keys)) {
		recorded = append(recorded, name+" "+i.Keys[name])
	}
	return invalid(fmt.Errorf("key %s: %w in %s, and no new keys are made for an installed database: copy the folder of keys that "+
		"it was installed with (fingerprints: %s) to %s, or name it with keys: in lapse.yaml, LAPSE_KEYS or --keys",
		joined(missing), config.ErrNoKey, s.Keys.Dir, strings.Join(recorded, ", "), s.Keys.Dir))
}

// keys makes the keys if none are configured, or where --keys says, unless the database was installed with others. It returns their
// fingerprints.
func (i *initialiser) keys(before *site.Installation) (found map[string]string, made string, err error) {
	source := i.settings.Keys
	missing := source.Missing(config.KeyNames()...)
	switch {
	case len(missing) == 0:
	case before != nil:
		return nil, "", lackingKeys(i.settings, before, missing)
	case source.Default || i.overrides.Keys != "":
		names, err := source.Make()
		if err != nil {
			return nil, "", err
		}
		made = fmt.Sprintf("%s in %s", joined(names), source.Dir)
		if i.overrides.Keys != "" {
			made += " (tell the other commands with keys: in lapse.yaml, or LAPSE_KEYS)"
		}
	}
	if found, err = fingerprints(i.settings, before, config.KeyNames()...); err != nil {
		return nil, made, invalid(err)
	}
	return found, made, invalid(i.addMonths(before, found))
}

// addMonths makes the keys of a year's months if the file named rows ends within two months. It skips a file that is not the recorded one:
// another check refuses that. It fails if the keys come from a variable, which it cannot change.
func (i *initialiser) addMonths(before *site.Installation, found map[string]string) error {
	if before != nil && before.Keys[string(config.RowsKey)] != found[string(config.RowsKey)] {
		return nil
	}
	keys, err := i.settings.Keys.EpochKeys()
	if err != nil || keys[schemas.EpochOf(time.Now().AddDate(0, 2, 0))] != nil {
		return err
	}
	_, err = i.settings.Keys.AddMonths(time.Now())
	return err
}

func joined[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = string(one)
	}
	return strings.Join(texts, ", ")
}
