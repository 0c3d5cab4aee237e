package main

import (
	"path/filepath"

	"lapse/internal/durable"
)

// reportWriter writes a report into a file, or several, and says which.
type reportWriter func(a *app, name string, made *madeReport) (files []string, err error)

// reportForm is the form of a report by its file's ending.
func reportForm(name string) (reportWriter, error) {
	switch filepath.Ext(name) {
	case ".json":
		return writeReportJSON, nil
	case ".html":
		return writeReportHTML, nil
	case ".csv":
		return writeReportCSV, nil
	}
	return nil, wrongUsage("-o %s: want a name that ends with .json, .html or .csv", name)
}

func writeReportJSON(_ *app, name string, made *madeReport) ([]string, error) {
	return []string{name}, durable.Write(name, made.canonical)
}
