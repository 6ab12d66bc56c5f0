"""What is measured of a model beside accuracy, and closed forms to compare it with."""
