// Package config reads lapse.yaml, the environment and the keys, and nothing else.
//
// A setting comes from a flag, or else from the environment, or else from lapse.yaml, or else it is the default. The
// caller hands over flags and environment; this package reads neither by itself.
//
//	config.go     the settings, their defaults and what they must satisfy together
//	file.go       lapse.yaml's keys, each read into its setting
//	document.go   its kinds of values, on top of internal/yamldoc: every error names file, line and column, all of them at once
//	database.go   which login plays which role; URLs as they may be shown
//	keys.go       the four keys: read, checked, made
//	broker.go     TLS and SASL for Kafka; scram.go is one of the mechanisms
//
// It promises that a Settings it returned is complete and consistent, and that nothing in it prints a secret by accident:
// URLs and keys have String methods that hide what they hold.
//
// It refuses unknown keys, values of another type, key files that others may read, and formats that this version does
// not write.
//
//	no lapse.yaml            all defaults; PG* variables name the database
//	no keys                  an error that says which command makes them; only init makes keys
//	crash while keys are made  a key file is there whole or not at all; the next init makes the missing ones
package config
