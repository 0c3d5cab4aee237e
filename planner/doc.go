// Package planner decides what is due, how it is found, and in which shards it is worked off. All SQL text that selects
// or deletes rows is built here.
package planner
